// SPDX-License-Identifier: Apache-2.0
// Schedules: ways to share the points of a fusion among units of work, and to walk the points of a unit in vectors.
//
// To teach the compiler a new one, write lib/Lowering/CPU/<Name>.cpp with a class derived from CpuSchedule and the
// function make<Name>Schedule(), and name it in lib/Lowering/CPU/Schedules.def, at its place in the order of
// preference.
#ifndef MPT_LOWERING_CPU_SCHEDULE_H
#define MPT_LOWERING_CPU_SCHEDULE_H

#include "mpt/Lowering/CPU/KernelBuilder.h"
#include "mpt/Lowering/Nest/KernelSchedule.h"

namespace mpt {

class CpuSchedule : public KernelSchedule {
public:
  using KernelSchedule::KernelSchedule;

  /// Whether this schedule serves the kernel better than the schedules behind it in the order. Changes nothing but the
  /// lane that findLane chooses.
  virtual mlir::LogicalResult match(CpuKernelBuilder &kernel) = 0;
  /// Fills the kernel's function after `match` succeeded, and returns how many units of work there are.
  virtual CpuUnits emit(CpuKernelBuilder &kernel, ElementEmitter &e) = 0;
};

using CpuScheduleMaker = std::unique_ptr<CpuSchedule> (*)();
/// All schedules of Schedules.def. The first that matches makes the kernel.
llvm::ArrayRef<CpuScheduleMaker> cpuSchedules();

} // namespace mpt

#endif // MPT_LOWERING_CPU_SCHEDULE_H
