// SPDX-License-Identifier: Apache-2.0
// Scale types behind stage fusion, where training arithmetic is written in core ops and library calls.
#ifndef MPT_PRECISION_LOWEREDSCALES_H
#define MPT_PRECISION_LOWEREDSCALES_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/ScaleFlow.h"

#include "llvm/ADT/StringMap.h"

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
  llvm::DenseMap<mlir::Value, mlir::Value> firsts; ///< of values but the first of each number
  llvm::DenseMap<size_t, llvm::SmallVector<mlir::Operation *, 1>> seen;
};

/// Scale types of values that go from one function of a step of replicas to later ones, by the names of results and
/// arguments. Scales have the names of their states, of the arithmetic on states that makes them, or of the values
/// themselves.
struct CrossingScales {
  struct Known {
    ScaleType type;                                            ///< but the powers of a product
    llvm::SmallVector<std::pair<std::string, int64_t>> powers; ///< of a product, by name
    bool isScale;                                              ///< nothing but that product
    mlir::Operation *unknown;                                  ///< the op that made the scale unknown, or null
  };
  llvm::StringMap<Known> values;
};

/// One walk forward over a function and the bodies of its fusions, by the rules of precision-verify. Scales are the
/// states that hold them, and the results of ops marked `train.scale`. Arithmetic on scales is not in types any more:
/// results that rules refuse are of unknown scale, a number by itself its own scale, and nothing is an error but where
/// it is committed or returned.
class LoweredScaleFlow : private ScaleInference {
public:
  /// Scale types of values that go from function to function are read from `crossing`, and added to it.
  LoweredScaleFlow(mlir::func::FuncOp function, const States &states, CrossingScales &crossing)
      : function(function), context(function.getContext()), states(states), crossing(crossing) {}
  /// Refuses writes and results that carry a scale, or an unknown one: errors at them. Values that replicas keep may
  /// carry any; values that they add, scales that are states, which are the same on all.
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
  void readArgument(mlir::BlockArgument argument, llvm::StringRef name);
  void noteResult(mlir::Value value, llvm::StringRef name);
  std::optional<std::string> nameOfScale(mlir::Value scale) const;
  struct Arithmetic {
    size_t hash;
    bool ofStates; ///< and constants alone: the same on all replicas
  };
  std::optional<Arithmetic> arithmeticOf(mlir::Value value, int depth = 0) const;
  mlir::Value firstOf(mlir::Value value) const;
  bool isOfStates(const ScaleType &type) const;

  mlir::func::FuncOp function;
  mlir::MLIRContext *context;
  const States &states;
  CrossingScales &crossing;
  llvm::DenseMap<mlir::Value, llvm::StringRef> crossingNames; ///< of arguments and results that cross
  llvm::StringMap<mlir::Value> scalesByName; ///< of crossing values: reads of states, or equal values here
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
