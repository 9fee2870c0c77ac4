// SPDX-License-Identifier: Apache-2.0
// Scale types behind stage fusion, where training arithmetic is written in core ops and library calls.
#ifndef MPT_PRECISION_LOWEREDSCALES_H
#define MPT_PRECISION_LOWEREDSCALES_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/ScaleFlow.h"

namespace mpt {

/// Numbers the values of a function and of its fusions: two of one number are one value, computed twice.
class ValueNumbers {
public:
  /// The first value of the same number.
  mlir::Value of(mlir::Value value) const;
  /// `value` is another name for `other`.
  void alias(mlir::Value value, mlir::Value other) { firsts.insert_or_assign(value, of(other)); }
  /// Numbers the results of a pure op without regions, after its operands.
  void add(mlir::Operation *op);

private:
  llvm::DenseMap<mlir::Value, mlir::Value> firsts; ///< but of those that are the first themselves
  llvm::DenseMap<size_t, llvm::SmallVector<mlir::Operation *, 1>> seen;
};

/// One walk forward over a function and the bodies of its fusions, by the rules of precision-verify. Scales are the
/// states that hold them, and what ops marked `train.scale` make. Arithmetic on scales is not in types any more: what
/// rules refuse is of unknown scale, a number by itself its own scale, and nothing is an error but where it is
/// committed or returned.
class LoweredScaleFlow : private ScaleInference {
public:
  LoweredScaleFlow(mlir::func::FuncOp function, const States &states)
      : function(function), context(function.getContext()), states(states) {}
  /// Refuses writes and results that carry a scale, or an unknown one: errors at them.
  llvm::LogicalResult verify();

private:
  ScaleType of(mlir::Value value) const override;
  void set(mlir::Value result, ScaleType type) override;
  ScaleType ofState(mlir::Value read, llvm::StringRef state) const override;
  mlir::InFlightDiagnostic refuse() override;

  void infer(mlir::Block &block);
  void infer(mlir::Operation *op);
  void enter(FusionOp fusion);
  void lose(mlir::Operation *op);
  void explain(mlir::InFlightDiagnostic &diagnostic, mlir::Value value) const;
  llvm::LogicalResult verifyWrite(train::WriteOp write);
  llvm::LogicalResult verifyResult(mlir::OpOperand &result);

  mlir::func::FuncOp function;
  mlir::MLIRContext *context;
  const States &states;
  ValueNumbers numbers;
  llvm::DenseMap<mlir::Value, ScaleType> types;           ///< but unscaled ones
  llvm::DenseMap<mlir::Value, mlir::Operation *> unknown; ///< of unknown scale, and the op that made it so
  mlir::Operation *current = nullptr;
  bool refused = false;
};

/// Whether any function of the module has scales to follow: states of them, or marks.
bool hasScales(mlir::ModuleOp module);

} // namespace mpt

#endif // MPT_PRECISION_LOWEREDSCALES_H
