// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules as ops.
#ifndef MPT_AUTODIFF_SCHEDULE_H
#define MPT_AUTODIFF_SCHEDULE_H

#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

/// The share of the rate (ScheduleSpec) at `step`, a scalar i64 that counts from 1: a scalar in FP64.
mlir::Value buildSchedule(GraphBuilder &b, const ScheduleSpec &schedule, mlir::Value step);

} // namespace mpt

#endif // MPT_AUTODIFF_SCHEDULE_H
