// SPDX-License-Identifier: Apache-2.0
// A schedule of the tests: one thread makes all points. This file and one line of a list teach it to the compiler.
#include "DeviceKernels.h"

using namespace mlir;
using namespace mpt;

namespace {

class SerialSchedule : public GpuSchedule {
public:
  SerialSchedule() : GpuSchedule("serial") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    if (!kernel.reductions.empty())
      return refuse(kernel, "expected no reduction");
    int64_t points = kernel.extentOf(kernel.kept);
    if (points > 64)
      return refuse(kernel, "expected at most 64 points, got " + Twine(points));
    return kernel.findLane();
  }

  void emit(GpuKernelBuilder &kernel) override {
    int64_t points = kernel.extentOf(kernel.kept);
    kernel.launch(name, {1, 1, 1}, 1, [&](GpuKernelBuilder::Frame &frame) {
      ElementEmitter &e = frame.e;
      e.loop(e.indexConstant(0), e.indexConstant(points), points, 1, {}, [&](IndexExpr i, ValueRange) {
        SmallVector<IndexExpr> at(kernel.shape.size());
        e.spread(i, kernel.shape, kernel.kept, at);
        kernel.storeOutputs(e, kernel.outputBuffers(frame.function), at, /*rowLevel=*/false);
        return SmallVector<Value>();
      });
    });
  }
};

} // namespace

std::unique_ptr<GpuSchedule> makeSerialSchedule() { return std::make_unique<SerialSchedule>(); }
