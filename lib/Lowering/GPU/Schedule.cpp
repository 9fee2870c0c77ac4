// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel's schedule.
#include "mpt/Lowering/GPU/Schedule.h"

#include "Schedules.h"

using namespace mlir;
using namespace mpt;

ArrayRef<GpuScheduleMaker> mpt::gpuSchedules() {
  static constexpr GpuScheduleMaker schedules[] = {
#define GPU_SCHEDULE(NAME) make##NAME##Schedule,
#include "Schedules.def"
  };
  return schedules;
}

FailureOr<GpuKernelInfo> mpt::emitGpuKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                            ArrayRef<MemRefType> outputs, StringRef name,
                                            const DeviceDescription &device, ArrayRef<int64_t> alignments) {
  return emitGpuKernel(builder, fusion, inputs, outputs, name, device, alignments, gpuSchedules());
}

FailureOr<GpuKernelInfo> mpt::emitGpuKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                            ArrayRef<MemRefType> outputs, StringRef name,
                                            const DeviceDescription &device, ArrayRef<int64_t> alignments,
                                            ArrayRef<GpuScheduleMaker> schedules) {
  GpuKernelBuilder kernel(builder, fusion, inputs, outputs, name, device, alignments);
  std::unique_ptr<GpuSchedule> schedule = firstMatch(kernel, schedules);
  if (schedule)
    schedule->emit(kernel);
  if (!schedule || kernel.hasFailed()) {
    for (GpuLaunch &launch : kernel.info.launches)
      launch.function->erase();
    return failure();
  }
  return std::move(kernel.info);
}
