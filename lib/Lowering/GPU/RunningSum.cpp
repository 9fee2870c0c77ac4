// SPDX-License-Identifier: Apache-2.0
// Schedule: running sums. One thread a line.
#include "mpt/Lowering/Models/RunningSum.h"
#include "Schedules.h"

using namespace mlir;
using namespace mpt;

namespace {

class RunningSum : public GpuSchedule {
public:
  RunningSum() : GpuSchedule("running-sum") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    op = runningSumOf(kernel.fusion);
    return op ? success() : refuse(kernel, "expected one running sum");
  }

  void emit(GpuKernelBuilder &kernel) override {
    LaneUnits units = runningSumUnits(op, 1);
    kernel.launchUnits(name, units.extent(), [&](GpuKernelBuilder::Frame &frame, Value begin, Value end) {
      emitRunningSum(frame.e, op, kernel.outputBuffers(frame.function).front(), begin, end, units);
    });
  }

private:
  CumSumOp op;
};

} // namespace

std::unique_ptr<GpuSchedule> mpt::makeRunningSumSchedule() { return std::make_unique<RunningSum>(); }
