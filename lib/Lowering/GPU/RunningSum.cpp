// SPDX-License-Identifier: Apache-2.0
// Schedule: running sums. One thread a line.
#include "mpt/Lowering/Models/RunningSum.h"
#include "Schedules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

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
    constexpr int64_t block = 64; // lines are few: small blocks reach more multiprocessors
    RunningSumUnits units = runningSumUnits(op, 1);
    kernel.launch(name, {ceilDiv(units.extent(), block), 1, 1}, block, [&](GpuKernelBuilder::Frame &frame) {
      ElementEmitter &e = frame.e;
      Value first = arith::MulIOp::create(e.b, frame.block, e.indexConstant(block));
      Value number = arith::AddIOp::create(e.b, first, frame.thread);
      Value end = arith::AddIOp::create(e.b, number, e.indexConstant(1));
      end = arith::MinUIOp::create(e.b, end, e.indexConstant(units.extent()));
      emitRunningSum(e, op, kernel.outputBuffers(frame.function).front(), number, end, units);
    });
  }

private:
  CumSumOp op;
};

} // namespace

std::unique_ptr<GpuSchedule> mpt::makeRunningSumSchedule() { return std::make_unique<RunningSum>(); }
