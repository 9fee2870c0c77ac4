// SPDX-License-Identifier: Apache-2.0
// Schedule: one thread a vector of points, or a point; loops inside an element are the thread's own.
#include "PointVectors.h"
#include "Schedules.h"
#include "Team.h"

#include "mpt/Lowering/GPU/Waves.h"

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
  static bool readsRepeatedly(const GpuKernelBuilder &kernel);
  void chooseRows(GpuKernelBuilder &kernel);
  void emitThread(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, int64_t block);
  void emitRaggedThread(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, Value number);
  void emitPoint(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, const IndexExpr &beside,
                 const IndexExpr &inner);
  void emitRows(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, const IndexExpr &beside,
                const IndexExpr &inner);

  int64_t lanes = 1, outer = 1; ///< points along the lane, and beside it
  unsigned vector = 1;
  bool ragged = false; ///< one more thread a row makes the points behind its last vector
  int64_t rows = 1;    ///< a thread makes the same lanes of so many, which share values of lanes alone
};

} // namespace

/// Whether rows read the same elements, such as a channel's scale.
bool Pointwise::readsRepeatedly(const GpuKernelBuilder &kernel) {
  auto isOfLane = [&](const IndexExpr::Term &term) {
    return llvm::any_of(kernel.lane, [&](int64_t axis) { return kernel.variables[axis] == term.variable; });
  };
  return llvm::any_of(kernel.accesses, [&](const MemoryAccess &access) {
    return !access.store && !access.address.terms.empty() && llvm::all_of(access.address.terms, isOfLane);
  });
}

/// As many rows a thread as share its beginning, while waves of blocks stay full.
void Pointwise::chooseRows(GpuKernelBuilder &kernel) {
  constexpr double own = 1; // the work that rows share, in rows
  rows = 1;
  if (kernel.lane.empty() || ragged || !kernel.reductions.empty() || kernel.innerLoops || !readsRepeatedly(kernel))
    return;
  double least = INFINITY;
  for (int64_t count : {4, 2, 1}) {
    if (outer % count != 0)
      continue;
    int64_t blocks = ceilDiv(outer / count * (lanes / vector), int64_t(256));
    double time = timeOfWaves(kernel.device, blocks, static_cast<double>(count) + own, {3, 4, 5, 6, 8});
    if (!isMuchLess(time, least))
      continue;
    least = time;
    rows = count;
  }
}

void Pointwise::emitPoint(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, const IndexExpr &beside,
                          const IndexExpr &inner) {
  ElementEmitter &e = frame.e;
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(beside, kernel.shape, kernel.outerAxes(e), at);
  if (!kernel.lane.empty())
    e.spread(inner, kernel.shape, kernel.lane, at);
  kernel.emitRow(e, kernel.outputBuffers(frame.function), at, /*laneGiven=*/true);
}

void Pointwise::emitRaggedThread(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, Value number) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  int64_t whole = lanes / vector;
  Value pieces = e.indexConstant(whole + 1);
  Value row = arith::DivUIOp::create(b, number, pieces), piece = arith::RemUIOp::create(b, number, pieces);
  auto is = [&](arith::CmpIPredicate predicate, Value x, int64_t y) -> Value {
    return arith::CmpIOp::create(b, predicate, x, e.indexConstant(y));
  };
  Value used = is(arith::CmpIPredicate::ult, number, outer * (whole + 1));
  Value inside = is(arith::CmpIPredicate::ult, piece, whole);
  e.guarded(arith::AndIOp::create(b, used, inside), [&] {
    Value first = arith::MulIOp::create(b, piece, e.indexConstant(vector));
    emitPoint(kernel, frame, e.variable(row, outer), e.variable(first, whole * vector, vector));
  });
  Value last = is(arith::CmpIPredicate::eq, piece, whole);
  e.guarded(arith::AndIOp::create(b, used, last), [&] {
    e.loop(e.indexConstant(whole * vector), e.indexConstant(lanes), lanes, 1, {}, [&](const IndexExpr &i, ValueRange) {
      emitPoint(kernel, frame, e.variable(row, outer), i);
      return SmallVector<Value>();
    });
  });
}

void Pointwise::emitThread(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, int64_t block) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Value number = arith::AddIOp::create(b, arith::MulIOp::create(b, frame.block, e.indexConstant(block)), frame.thread);
  if (ragged)
    return emitRaggedThread(kernel, frame, number);
  int64_t units = outer / rows * (lanes / vector);
  Value first = vector > 1 ? Value(arith::MulIOp::create(b, number, e.indexConstant(vector))) : number;
  Value used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, e.indexConstant(units));
  e.guarded(used, [&] {
    auto [beside, inner] = e.space.divide(e.variable(first, units * vector, vector), lanes);
    if (rows == 1)
      emitPoint(kernel, frame, beside, inner);
    else
      emitRows(kernel, frame, beside, inner);
  });
}

/// The same lanes of `rows` rows, equally far apart. All reads come before the writes, so that they can overlap.
void Pointwise::emitRows(GpuKernelBuilder &kernel, GpuKernelBuilder::Frame &frame, const IndexExpr &beside,
                         const IndexExpr &inner) {
  ElementEmitter &e = frame.e;
  SmallVector<KernelNest::Result> results;
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(inner, kernel.shape, kernel.lane, at);
  for (int64_t row = 0; row < rows; ++row) {
    e.spread(e.space.add(beside, IndexExpr(row * (outer / rows))), kernel.shape, kernel.outerAxes(e), at);
    llvm::append_range(results, kernel.outputsAt(e, at, /*rowLevel=*/false));
  }
  kernel.store(e, kernel.outputBuffers(frame.function), results);
}

void Pointwise::emit(GpuKernelBuilder &kernel) {
  if (!kernel.laneKept())
    kernel.lane.clear();
  kernel.laneInRow = false;
  kernel.width = 1;
  PointVectors chosen(kernel);
  lanes = chosen.lanes;
  outer = chosen.outer;
  vector = chosen.vector;
  ragged = chosen.ragged;
  chooseRows(kernel);
  int64_t units = outer / rows * (lanes / vector + ragged), block = 256;
  while (block > 64 && units < 2 * kernel.device.multiprocessors * block)
    block /= 2;
  kernel.launch("pointwise", {ceilDiv(units, block), 1, 1}, block,
                [&](GpuKernelBuilder::Frame &frame) { emitThread(kernel, frame, block); });
  kernel.markInPlace(/*reductionsToo=*/false);
}

std::unique_ptr<GpuSchedule> mpt::makePointwiseSchedule() { return std::make_unique<Pointwise>(); }
