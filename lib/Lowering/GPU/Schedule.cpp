// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel's schedule.
#include "mpt/Lowering/GPU/Schedule.h"

#include "Schedules.h"

#include "mpt/Support/Refusal.h"

#define DEBUG_TYPE "memory-bufferize"

using namespace mlir;
using namespace mpt;

GpuSchedule::~GpuSchedule() = default;

LogicalResult GpuSchedule::refuse(GpuKernelBuilder &kernel, const Twine &reason) const {
  return mpt::refuse(DEBUG_TYPE, kernel.fusion) << "not " << name << ": " << reason;
}

ArrayRef<GpuScheduleMaker> mpt::gpuSchedules() {
  static constexpr GpuScheduleMaker schedules[] = {
#define GPU_SCHEDULE(NAME) make##NAME##Schedule,
#include "Schedules.def"
  };
  return schedules;
}

/// Emits with the first of `schedules` that matches. Fails where one reported an op without a loop form.
static LogicalResult emitFirstMatch(GpuKernelBuilder &kernel, ArrayRef<GpuScheduleMaker> schedules) {
  for (GpuScheduleMaker make : schedules) {
    std::unique_ptr<GpuSchedule> schedule = make();
    if (succeeded(schedule->match(kernel))) {
      schedule->emit(kernel);
      return success(!kernel.hasFailed());
    }
    if (kernel.hasFailed())
      return failure();
  }
  return kernel.fusion.emitError() << "expected a GPU schedule that serves this fusion, got none";
}

FailureOr<GpuKernelInfo> mpt::emitGpuKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                            ArrayRef<MemRefType> outputs, StringRef name, const GpuTarget &target,
                                            ArrayRef<int64_t> alignments) {
  return emitGpuKernel(builder, fusion, inputs, outputs, name, target, alignments, gpuSchedules());
}

FailureOr<GpuKernelInfo> mpt::emitGpuKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                            ArrayRef<MemRefType> outputs, StringRef name, const GpuTarget &target,
                                            ArrayRef<int64_t> alignments, ArrayRef<GpuScheduleMaker> schedules) {
  GpuKernelBuilder kernel(builder, fusion, inputs, outputs, name, target, alignments);
  if (failed(emitFirstMatch(kernel, schedules))) {
    for (GpuLaunch &launch : kernel.info.launches)
      launch.function->erase();
    return failure();
  }
  return std::move(kernel.info);
}
