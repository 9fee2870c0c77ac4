// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel's schedule.
#include "mpt/Lowering/CPU/Schedule.h"

#include "Schedules.h"

using namespace mlir;
using namespace mpt;

ArrayRef<CpuScheduleMaker> mpt::cpuSchedules() {
  static constexpr CpuScheduleMaker schedules[] = {
#define CPU_SCHEDULE(NAME) cpu::make##NAME##Schedule,
#include "Schedules.def"
  };
  return schedules;
}

FailureOr<KernelInfo> mpt::emitKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                      ArrayRef<MemRefType> outputs, StringRef name, const KernelTarget &target) {
  CpuKernelBuilder kernel(fusion, inputs, outputs, target);
  std::unique_ptr<CpuSchedule> schedule = firstMatch(kernel, cpuSchedules());
  if (!schedule)
    return failure();
  kernel.function = kernel.makeFunction(builder, name, {builder.getIndexType(), builder.getIndexType()});
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&kernel.function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/false);
  kernel.bind(e, kernel.function);
  CpuUnits units = schedule->emit(kernel, e);
  if (e.failed()) {
    kernel.function->erase();
    return failure();
  }
  return KernelInfo{kernel.function, units.extent, units.grain, kernel.inPlace};
}
