// SPDX-License-Identifier: Apache-2.0
// Schedule: a loop nest. A unit is a row with its reductions, or a piece of the contiguous axis.
#include "Schedules.h"

using namespace mlir;
using namespace mpt;

namespace {

class Nest : public CpuSchedule {
public:
  Nest() : CpuSchedule("nest") {}

  LogicalResult match(CpuKernelBuilder &kernel) override { return success(kernel.findLane()); }

  CpuUnits emit(CpuKernelBuilder &kernel, ElementEmitter &e) override {
    return kernel.emitUnits(e, [&](SmallVector<IndexExpr> at, bool laneGiven) {
      kernel.emitRow(e, kernel.outputBuffers(kernel.function), std::move(at), laneGiven);
    });
  }
};

} // namespace

std::unique_ptr<CpuSchedule> mpt::cpu::makeNestSchedule() { return std::make_unique<Nest>(); }
