// SPDX-License-Identifier: Apache-2.0
// The kernel of mpt.cum_sum: one walk along the axis, parallel over all other dimensions.
#ifndef MPT_LOWERING_MODELS_RUNNINGSUM_H
#define MPT_LOWERING_MODELS_RUNNINGSUM_H

#include "mpt/Lowering/Models/LaneUnits.h"

namespace mpt {

/// The running sum that makes the only output of `fusion`; null where there is none.
CumSumOp runningSumOf(FusionOp fusion);

/// The lines of a running sum: rows are places in front of the axis, lanes places behind it.
LaneUnits runningSumUnits(CumSumOp op, int64_t chunk);

/// Writes units [begin, end) of `op`'s result to `buffer`. Each element is added once, from the axis' first on (its
/// last with `reverse`), in the interpreter's order.
void emitRunningSum(ElementEmitter &e, CumSumOp op, mlir::Value buffer, mlir::Value begin, mlir::Value end,
                    const LaneUnits &units);

} // namespace mpt

#endif // MPT_LOWERING_MODELS_RUNNINGSUM_H
