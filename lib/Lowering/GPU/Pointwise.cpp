// SPDX-License-Identifier: Apache-2.0
// Schedule: one thread a vector of points, or a point; loops inside an element are the thread's own.
#include "Schedules.h"
#include "Team.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

class Pointwise : public GpuSchedule {
public:
  Pointwise() : GpuSchedule("pointwise") {}

  LogicalResult match(GpuKernelBuilder &kernel) override { return kernel.findLane(); }
  void emit(GpuKernelBuilder &kernel) override;

private:
  void chooseVectors(GpuKernelBuilder &kernel);
  void emitThread(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, int64_t block);

  int64_t lanes = 1, outer = 1; ///< points along the lane, and beside it
  unsigned vector = 1;
  bool ragged = false; ///< one more thread makes the flat range's points behind the last vector
};

} // namespace

void Pointwise::chooseVectors(GpuKernelBuilder &kernel) {
  lanes = kernel.lane.empty() ? 1 : kernel.extentOf(kernel.lane);
  outer = kernel.extentOf(kernel.kept) / lanes;
  // Sums of one thread, which FP64 often takes, keep as many values as long fusions do.
  auto widthOf = [&](int64_t extent) {
    return std::min(kernel.vectorWidth(extent, kernel.contiguousBytes()), kernel.reductions.empty() ? 8u : 4u);
  };
  vector = kernel.lane.empty() ? 1 : widthOf(lanes);
  // A flat range keeps its wide vectors and leaves the rest to one more thread.
  ragged = !kernel.lane.empty() && outer == 1 && vector < widthOf(0) && lanes >= 256;
  if (ragged)
    vector = widthOf(0);
}

void Pointwise::emitThread(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, int64_t block) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  int64_t whole = outer * (lanes / vector);
  Value number = arith::AddIOp::create(b, arith::MulIOp::create(b, frame.block, e.indexConstant(block)), frame.thread);
  SmallVector<int64_t> order = kernel.outerAxes(e);
  auto point = [&](const IndexExpr &position) {
    SmallVector<IndexExpr> at(kernel.shape.size());
    auto [beside, inner] = e.space.divide(position, lanes);
    e.spread(beside, kernel.shape, order, at);
    if (!kernel.lane.empty())
      e.spread(inner, kernel.shape, kernel.lane, at);
    kernel.emitRow(e, kernel.outputBuffers(frame.function), at, /*laneGiven=*/true);
  };
  Value first = vector > 1 ? Value(arith::MulIOp::create(b, number, e.indexConstant(vector))) : number;
  Value used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, e.indexConstant(whole));
  e.guarded(used, [&] { point(e.variable(first, whole * vector, vector)); });
  if (!ragged)
    return;
  Value last = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, number, e.indexConstant(whole));
  e.guarded(last, [&] {
    e.loop(e.indexConstant(whole * vector), e.indexConstant(lanes), lanes, 1, {}, [&](IndexExpr i, ValueRange) {
      point(i);
      return SmallVector<Value>();
    });
  });
}

void Pointwise::emit(GpuKernelBuilder &kernel) {
  if (!kernel.laneKept())
    kernel.lane.clear();
  kernel.laneInRow = false;
  kernel.width = 1;
  chooseVectors(kernel);
  int64_t units = outer * (lanes / vector) + ragged, block = 256;
  while (block > 64 && units < 2 * kernel.target.multiprocessors * block)
    block /= 2;
  kernel.launch("pointwise", {ceilDiv(units, block), 1, 1}, block,
                [&](GpuKernelBuilder::Frame &frame) { emitThread(kernel, frame, block); });
  kernel.markInPlace(/*reductionsToo=*/false);
}

std::unique_ptr<GpuSchedule> mpt::makePointwiseSchedule() { return std::make_unique<Pointwise>(); }
