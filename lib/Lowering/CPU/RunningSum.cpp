// SPDX-License-Identifier: Apache-2.0
// Schedule: running sums. A unit is some neighbouring lines, which are walked together in vectors.
#include "Schedules.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Models/RunningSum.h"

using namespace mlir;
using namespace mpt;

namespace {

class RunningSum : public CpuSchedule {
public:
  RunningSum() : CpuSchedule("running-sum") {}

  LogicalResult match(CpuKernelBuilder &kernel) override {
    op = runningSumOf(kernel.fusion);
    return op ? success() : refuse(kernel, "expected one running sum");
  }

  CpuUnits emit(CpuKernelBuilder &kernel, ElementEmitter &e) override {
    // Two cache lines of f32 a row keep neighbouring threads apart.
    LaneUnits units = runningSumUnits(op, std::max<int64_t>(64, kernel.target.lanes()));
    emitRunningSum(e, op, kernel.outputBuffers(kernel.function).front(), kernel.begin(), kernel.end(), units);
    int64_t elements = tensorType(op.getY()).getNumElements(),
            each = std::max<int64_t>(1, elements / std::max<int64_t>(1, units.extent()));
    return {units.extent(), std::max<int64_t>(1, 32768 / each)};
  }

private:
  CumSumOp op;
};

} // namespace

std::unique_ptr<CpuSchedule> mpt::cpu::makeRunningSumSchedule() { return std::make_unique<RunningSum>(); }
