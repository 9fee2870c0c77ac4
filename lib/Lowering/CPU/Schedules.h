// SPDX-License-Identifier: Apache-2.0
// A maker for every schedule of Schedules.def.
#ifndef MPT_LIB_LOWERING_CPU_SCHEDULES_H
#define MPT_LIB_LOWERING_CPU_SCHEDULES_H

#include "mpt/Lowering/CPU/Schedule.h"

namespace mpt::cpu {

#define CPU_SCHEDULE(NAME) std::unique_ptr<CpuSchedule> make##NAME##Schedule();
#include "Schedules.def"

} // namespace mpt::cpu

#endif // MPT_LIB_LOWERING_CPU_SCHEDULES_H
