// SPDX-License-Identifier: Apache-2.0
// Values that the backward pass computes once more instead of keeping them from the forward pass on.
#ifndef MPT_FUSION_REMATERIALIZATION_H
#define MPT_FUSION_REMATERIALIZATION_H

#include "mpt/Fusion/CodedActivations.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

struct RematerializationGoal {
  int64_t bytes = 0;        ///< to keep less, by further passes over memory
  double effort = 1;        ///< percent of the contractions' time that passes over memory may add
  bool memoryBound = false; ///< add no pass over memory, and compute nothing from several operands of its size
  const CodedActivations *coded = nullptr; ///< values that are kept as codes where they are kept
};

struct RematerializationResult {
  int64_t keptBytes = 0; ///< for the backward pass
  int64_t numOps = 0;    ///< computed once more; each carries `mpt.recomputed`
};

/// Rewrites a function with a backward pass (see fusion-rematerialize's description); others stay as they are.
RematerializationResult rematerialize(mlir::func::FuncOp function, const RematerializationGoal &goal);

} // namespace mpt

#endif // MPT_FUSION_REMATERIALIZATION_H
