// SPDX-License-Identifier: Apache-2.0
// The kernel of mpt.cum_sum: one walk along the axis, parallel over all other dimensions.
#ifndef MPT_LOWERING_MODELS_RUNNINGSUM_H
#define MPT_LOWERING_MODELS_RUNNINGSUM_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

namespace mpt {

/// The running sum that makes the only output of `fusion`; null where there is none.
CumSumOp runningSumOf(FusionOp fusion);

/// The lines of a running sum, by their places beside the axis: `outer` places in front of it, `lanes` behind. A unit
/// is at most `chunk` neighbouring lanes of one place in front.
struct RunningSumUnits {
  int64_t outer = 1, lanes = 1, chunk = 1;
  int64_t extent() const { return outer * ((lanes + chunk - 1) / chunk); }
};
RunningSumUnits runningSumUnits(CumSumOp op, int64_t chunk);

/// Writes units [begin, end) of `op`'s result to `buffer`. Each element is added once, from the axis' first on (its
/// last with `reverse`), in the interpreter's order.
void emitRunningSum(ElementEmitter &e, CumSumOp op, mlir::Value buffer, mlir::Value begin, mlir::Value end,
                    const RunningSumUnits &units);

} // namespace mpt

#endif // MPT_LOWERING_MODELS_RUNNINGSUM_H
