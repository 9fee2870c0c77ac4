// SPDX-License-Identifier: Apache-2.0
// Order of ops where it decides how much memory is alive.
#ifndef MPT_MEMORY_SCHEDULE_H
#define MPT_MEMORY_SCHEDULE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt::memory {

/// Moves every op that only computes new state to where its operands are ready and the old state has been read: an
/// optimizer's update then follows its gradient, which need not live to the end of the step.
void scheduleUpdates(mlir::func::FuncOp function);

} // namespace mpt::memory

#endif // MPT_MEMORY_SCHEDULE_H
