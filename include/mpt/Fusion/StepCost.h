// SPDX-License-Identifier: Apache-2.0
// A model of a step's time, to compare plans of one step.
#ifndef MPT_FUSION_STEPCOST_H
#define MPT_FUSION_STEPCOST_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Operations of GEMMs in the time in which memory moves a byte.
inline constexpr double kFlopsPerByte = 4;
/// Bytes moved in the time that an exponential, error function, search or random number takes.
inline constexpr int64_t kCostlyBytes = 24;

/// Times as bytes that memory moves in them.
struct StepCost {
  int64_t moved = 0;        ///< by kernels and library calls, and the like of costly arithmetic in kernels
  int64_t contractions = 0; ///< arithmetic of GEMMs and convolutions

  int64_t time() const { return moved + contractions; }
};

/// Floating-point operations of all GEMMs and convolutions.
double contractionFlops(mlir::func::FuncOp function);

/// Of a function after fusion-form. A kernel reads each operand once.
StepCost stepCost(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_FUSION_STEPCOST_H
