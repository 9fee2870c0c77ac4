// SPDX-License-Identifier: Apache-2.0
// Schedule: scatters in order. One thread a position of the last dimension that updates and result share.
#include "Schedules.h"
#include "mpt/Lowering/Models/Scatter.h"

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
    Value result = kernel.yielded().front();
    LaneUnits units = scatterUnits(*form, result, 1);
    kernel.launchUnits(name, units.extent(), [&](GpuKernelBuilder::Frame &frame, Value begin, Value end) {
      emitScatter(frame.e, *form, result, kernel.outputBuffers(frame.function).front(), begin, end, units);
    });
  }

private:
  std::optional<ScatterForm> form;
};

} // namespace

std::unique_ptr<GpuSchedule> mpt::makeOrderedScatterSchedule() { return std::make_unique<OrderedScatter>(); }
