// SPDX-License-Identifier: Apache-2.0
// Policy auto: which ops stay wide so that errors stay within the budget.
#ifndef MPT_LIB_PRECISION_SOLVE_BUDGET_H
#define MPT_LIB_PRECISION_SOLVE_BUDGET_H

#include "mpt/Precision/ErrorFlow.h"

namespace mpt {

/// The demands of the error budget or measured times on an op's types.
struct Kept {
  bool wide = false;      ///< else it is the 8-bit type alone that the op may not have
  bool quantized = false; ///< it may have that, too: there is a reason to tell alone
  std::string rule;
};
using KeptOps = llvm::DenseMap<mlir::Operation *, Kept>;

/// Adds ops, a batch a call, until the modelled error of each result and gradient is at most the budget. Errors that
/// FP32 makes by itself (gradients that cancel to nothing) are not held against the budget.
class ErrorBudget {
public:
  ErrorBudget(mlir::ModuleOp module, const Policy &policy);
  ErrorBudget(const ErrorBudget &) = delete; // flows refer to `values`

  /// Adds to kept() the ops that make the largest error for the least gain, and returns true; or false when all errors
  /// are within the budget, or rules of the user's alone make them.
  bool restrict(const Decisions &decisions);
  const KeptOps &kept() const { return ops; }
  /// Errors of the training step's outputs, or of all functions' where none trains, under the decisions seen last.
  std::vector<ErrorBound> bounds() const;

private:
  struct Flow {
    ErrorFlow errors;
    std::vector<double> floors; ///< by output: the error of FP32 alone
    bool reported = false;
  };
  bool restrict(const Flow &flow, const ErrorFlow::Output &output, const Decisions &decisions);

  MeasuredTypes values;
  double budget;
  std::vector<Flow> flows; ///< by function
  KeptOps ops;
};

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_BUDGET_H
