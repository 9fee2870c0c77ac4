// SPDX-License-Identifier: Apache-2.0
// Schedule: scatters in order. One thread a position of the last dimension that updates and result share.
#include "Schedules.h"
#include "mpt/Lowering/Models/Scatter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

class OrderedScatter : public GpuSchedule {
public:
  OrderedScatter() : GpuSchedule("scatter") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    form = scatterForm(kernel.fusion);
    return form ? success() : refuse(kernel, "expected one scattering op");
  }

  void emit(GpuKernelBuilder &kernel) override {
    constexpr int64_t block = 64;
    Value result = kernel.yielded().front();
    ScatterUnits units = scatterUnits(*form, result, 1);
    kernel.launch(name, {ceilDiv(units.extent(), block), 1, 1}, block, [&](GpuKernelBuilder::Frame &frame) {
      ElementEmitter &e = frame.e;
      Value first = arith::MulIOp::create(e.b, frame.block, e.indexConstant(block));
      Value number = arith::AddIOp::create(e.b, first, frame.thread);
      Value end = arith::AddIOp::create(e.b, number, e.indexConstant(1));
      end = arith::MinUIOp::create(e.b, end, e.indexConstant(units.extent()));
      emitScatter(e, *form, result, kernel.outputBuffers(frame.function).front(), number, end, units);
    });
  }

private:
  std::optional<ScatterForm> form;
};

} // namespace

std::unique_ptr<GpuSchedule> mpt::makeOrderedScatterSchedule() { return std::make_unique<OrderedScatter>(); }
