// SPDX-License-Identifier: Apache-2.0
// The scale type of each value of a function, by the rules that its ops state.
#ifndef MPT_PRECISION_SCALEFLOW_H
#define MPT_PRECISION_SCALEFLOW_H

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/GradientScale.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// The module's states by name.
using States = llvm::DenseMap<mlir::StringAttr, train::StateOp>;

/// One walk forward over a function (docs/scale-types.md). Arguments, and states that are no scales, are unscaled.
class ScaleFlow : private ScaleInference {
public:
  ScaleFlow(mlir::func::FuncOp function, const States &states)
      : function(function), context(function.getContext()), states(states) {}
  /// Refuses ops without a rule, and ops that their rule refuses: errors at the ops.
  llvm::LogicalResult infer();
  ScaleType of(mlir::Value value) const override;

private:
  void set(mlir::Value result, ScaleType type) override;
  ScaleType ofState(mlir::Value read, llvm::StringRef state) const override;
  mlir::InFlightDiagnostic refuse() override;
  void nameScales();

  mlir::func::FuncOp function;
  mlir::MLIRContext *context;
  const States &states;
  llvm::DenseMap<mlir::Value, ScaleType> types; ///< but unscaled ones
  llvm::DenseSet<mlir::Value> named;            ///< values that ops use as scales
  llvm::DenseMap<mlir::StringAttr, mlir::Value> reads;
  mlir::Operation *current = nullptr;
  bool refused = false;
};

} // namespace mpt

#endif // MPT_PRECISION_SCALEFLOW_H
