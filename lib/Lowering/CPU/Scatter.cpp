// SPDX-License-Identifier: Apache-2.0
// Schedule: scatters. A unit is a slice of the result that one thread brings up to date, with the updates in order.
#include "Schedules.h"

#include "mpt/Lowering/Models/Scatter.h"

using namespace mlir;
using namespace mpt;

namespace {

class Scatter : public CpuSchedule {
public:
  Scatter() : CpuSchedule("scatter") {}

  LogicalResult match(CpuKernelBuilder &kernel) override {
    form = scatterForm(kernel.fusion);
    return form ? success() : refuse(kernel, "expected one scattering op");
  }

  CpuUnits emit(CpuKernelBuilder &kernel, ElementEmitter &e) override {
    Value result = kernel.yielded().front();
    // Two cache lines of f32 a row keep neighbouring threads apart.
    LaneUnits units = scatterUnits(*form, result, std::max<int64_t>(64, kernel.target.lanes()));
    emitScatter(e, *form, result, kernel.outputBuffers(kernel.function).front(), kernel.begin(), kernel.end(), units);
    return {units.extent(), 1};
  }

private:
  std::optional<ScatterForm> form;
};

} // namespace

std::unique_ptr<CpuSchedule> mpt::cpu::makeScatterSchedule() { return std::make_unique<Scatter>(); }
