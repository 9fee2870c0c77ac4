// SPDX-License-Identifier: Apache-2.0
// A maker for every schedule of Schedules.def.
#ifndef MPT_LIB_LOWERING_GPU_SCHEDULES_H
#define MPT_LIB_LOWERING_GPU_SCHEDULES_H

#include "mpt/Lowering/GPU/Schedule.h"

namespace mpt {

#define GPU_SCHEDULE(NAME) std::unique_ptr<GpuSchedule> make##NAME##Schedule();
#include "Schedules.def"

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_SCHEDULES_H
