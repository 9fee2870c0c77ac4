// SPDX-License-Identifier: Apache-2.0
// Conditions and sources of a function's commits: the rules of precision-verify beyond types.
#ifndef MPT_PRECISION_STEPRULES_H
#define MPT_PRECISION_STEPRULES_H

#include "mpt/Precision/FiniteChecks.h"
#include "mpt/Precision/ScaleFlow.h"
#include "mpt/Precision/Settings.h"

namespace mpt {

/// The state that keeps the rounding errors of a parameter (`policy.rounding "compensated"`).
std::string remainderOf(llvm::StringRef parameter);

/// A function that computes gradients, and the states that its writes go to.
struct StepFunction {
  StepFunction(mlir::func::FuncOp function, const States &states);

  const States &states;
  llvm::DenseMap<mlir::StringAttr, train::WriteOp> writes;
  llvm::DenseMap<mlir::Value, mlir::StringAttr> reads;     ///< state by value
  llvm::DenseMap<mlir::Value, mlir::StringAttr> gradients; ///< parameter by value
  bool updates = false;                                    ///< writes parameters

  /// The state gets its old value plus `by`, element by element, whether or not the step commits.
  bool advances(mlir::StringAttr name, llvm::ArrayRef<int64_t> by) const;
  /// The same of one write, wherever its condition holds.
  bool advances(train::WriteOp write, llvm::ArrayRef<int64_t> by) const;
  mlir::func::FuncOp getFunction() const { return function; }
  train::StateOp state(mlir::StringAttr name) const { return states.lookup(name); }

private:
  mlir::func::FuncOp function;
};

/// Every write that a step may skip has a condition which proves all gradients finite, and which a finite step meets.
/// Under a check by parameter, states of a parameter have one that its own gradient and the loss alone decide about.
llvm::LogicalResult verifyCommits(const StepFunction &step, const ScaleFlow &flow, const LossScaling &scaling);
/// Each loss is multiplied by the policy's kind of scale, and each gradient comes from a loss that is.
llvm::LogicalResult verifyScaledLosses(const StepFunction &step, const LossScaling &scaling);
/// Scales of a dynamic policy move by the checks that the commit depends on.
llvm::LogicalResult verifyScaleUpdates(const StepFunction &step, const LossScaling &scaling);
/// Updates start from masters where there are any, from their own gradients and optimizer state; sums over micro-steps
/// are kept or emptied.
llvm::LogicalResult verifyUpdates(const StepFunction &step);

} // namespace mpt

#endif // MPT_PRECISION_STEPRULES_H
