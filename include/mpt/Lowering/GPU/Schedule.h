// SPDX-License-Identifier: Apache-2.0
// Schedules: ways to share the points of a fusion among the threads of a grid.
//
// To teach the compiler a new one, write lib/Lowering/GPU/<Name>.cpp with a class derived from GpuSchedule and the
// function make<Name>Schedule(), and name it in lib/Lowering/GPU/Schedules.def, at its place in the order of
// preference.
#ifndef MPT_LOWERING_GPU_SCHEDULE_H
#define MPT_LOWERING_GPU_SCHEDULE_H

#include "mpt/Lowering/GPU/KernelBuilder.h"
#include "mpt/Lowering/Nest/KernelSchedule.h"

namespace mpt {

class GpuSchedule : public KernelSchedule {
public:
  using KernelSchedule::KernelSchedule;

  /// Whether this schedule serves the kernel better than the schedules behind it in the order. Changes nothing but the
  /// lane that findLane chooses.
  virtual mlir::LogicalResult match(GpuKernelBuilder &kernel) = 0;
  /// Adds the kernel's launches, after `match` succeeded.
  virtual void emit(GpuKernelBuilder &kernel) = 0;
};

using GpuScheduleMaker = std::unique_ptr<GpuSchedule> (*)();
/// All schedules of Schedules.def. The first that matches makes the kernel.
llvm::ArrayRef<GpuScheduleMaker> gpuSchedules();

/// As emitGpuKernel of Kernel.h, with a choice of schedules.
llvm::FailureOr<GpuKernelInfo> emitGpuKernel(mlir::OpBuilder &builder, FusionOp fusion,
                                             llvm::ArrayRef<mlir::MemRefType> inputs,
                                             llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name,
                                             const DeviceDescription &device, llvm::ArrayRef<int64_t> alignments,
                                             llvm::ArrayRef<GpuScheduleMaker> schedules);

} // namespace mpt

#endif // MPT_LOWERING_GPU_SCHEDULE_H
