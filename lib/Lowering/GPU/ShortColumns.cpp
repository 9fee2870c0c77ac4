// SPDX-License-Identifier: Apache-2.0
// Schedule: sums of few terms that are not contiguous. Threads below each other in a block share a vector of sums, as
// many as fill waves of blocks; their sums are added up in shared memory, from the first thread to the last. Elements
// that are wanted beside the sums are written on the way.
#include "PointVectors.h"
#include "ReductionShape.h"
#include "Schedules.h"
#include "Team.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/GPU/Waves.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

class ShortColumns : public GpuSchedule {
public:
  ShortColumns() : GpuSchedule("short-columns") {}

  LogicalResult match(GpuKernelBuilder &kernel) override;
  void emit(GpuKernelBuilder &kernel) override;

private:
  using Frame = GpuKernelBuilder::Frame;
  /// A thread's place in its block.
  struct Place {
    Value x, y;   ///< beside each other over vectors of points, and below each other over terms
    Value number; ///< of the vector of points
    Value used;   ///< null where all threads have one
  };
  void chooseThreads(const DeviceDescription &device);
  Place placeOf(Frame &frame) const;
  SmallVector<IndexExpr> pointAt(GpuKernelBuilder &kernel, ElementEmitter &e, Value number) const;
  SmallVector<Value> walk(GpuKernelBuilder &kernel, Frame &frame, const Place &place) const;
  void emitThread(GpuKernelBuilder &kernel, Frame &frame) const;

  ReduceOp main;
  SmallVector<Accumulator> accumulators; ///< between threads
  int64_t lanes = 1, outer = 1, units = 1, extent = 1;
  unsigned vector = 1;
  int64_t across = 256, down = 1; ///< threads of a block, and how they lie
};

/// Sums that the threads of a column left in shared memory, a buffer [thread][point] for each reduction.
class ColumnSums : public ReductionStrategy {
public:
  ColumnSums(GpuKernelBuilder &kernel, ArrayRef<Accumulator> accumulators, int64_t down, unsigned vector)
      : kernel(kernel), accumulators(accumulators), down(down), vector(vector) {}

  void leave(GpuKernelBuilder::Frame &frame, int64_t across, Value x, Value y, ArrayRef<Value> sums);
  std::optional<SmallVector<Value>> reduce(ElementEmitter &e, MutableArrayRef<ReduceOp> group,
                                           ArrayRef<IndexExpr> at) override;

  SmallVector<IndexExpr> point; ///< of the results, whose sums these are

private:
  llvm::Align alignmentOf(Type type) const {
    return llvm::Align(std::min<int64_t>(kernel.device.accessBytes, vector * bytesOf(type)));
  }
  Value fetch(ElementEmitter &e, unsigned number, int64_t y) const;

  GpuKernelBuilder &kernel;
  ArrayRef<Accumulator> accumulators;
  int64_t down;
  unsigned vector;
  SmallVector<Value> buffers;
  Value first; ///< the thread's first point
};

} // namespace

//===----------------------------------------------------------------------===//
// Sums of a column's threads
//===----------------------------------------------------------------------===//

void ColumnSums::leave(GpuKernelBuilder::Frame &frame, int64_t across, Value x, Value y, ArrayRef<Value> sums) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  first = vector > 1 ? Value(arith::MulIOp::create(b, x, e.indexConstant(vector))) : x;
  for (auto [sum, a] : llvm::zip_equal(sums, accumulators)) {
    Value memory = sharedBuffer(e, {down, across * static_cast<int64_t>(vector)}, a.type, frame.sharedBytes);
    buffers.push_back(memory);
    Value kept = a.type.isInteger(1) ? Value(arith::ExtUIOp::create(b, e.typeLike(b.getI8Type(), sum), sum)) : sum;
    if (vector == 1)
      memref::StoreOp::create(b, kept, memory, ValueRange{y, first});
    else
      vector::StoreOp::create(b, kept, memory, ValueRange{y, first}, false, alignmentOf(a.type));
  }
  gpu::BarrierOp::create(b);
}

Value ColumnSums::fetch(ElementEmitter &e, unsigned number, int64_t y) const {
  ImplicitLocOpBuilder &b = e.b;
  Value memory = buffers[number];
  SmallVector<Value> place{e.indexConstant(y), first};
  Type stored = cast<MemRefType>(memory.getType()).getElementType(), type = accumulators[number].type;
  Value value =
      vector == 1
          ? Value(memref::LoadOp::create(b, memory, place))
          : Value(vector::LoadOp::create(b, VectorType::get(vector, stored), memory, place, false, alignmentOf(type)));
  return type == stored ? value : Value(arith::TruncIOp::create(b, e.typeLike(type, value), value));
}

std::optional<SmallVector<Value>> ColumnSums::reduce(ElementEmitter &e, MutableArrayRef<ReduceOp> group,
                                                     ArrayRef<IndexExpr> at) {
  if (at != ArrayRef<IndexExpr>(point))
    return std::nullopt;
  SmallVector<Value> results;
  for (ReduceOp op : group) {
    unsigned number = llvm::find(kernel.reductions, op) - kernel.reductions.begin();
    Value sum = fetch(e, number, 0);
    for (int64_t y = 1; y < down; ++y)
      sum = accumulators[number].combine(e, sum, fetch(e, number, y));
    results.push_back(finishReduction(e, op, sum));
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Match
//===----------------------------------------------------------------------===//

LogicalResult ShortColumns::match(GpuKernelBuilder &kernel) {
  if (kernel.reductions.empty())
    return refuse(kernel, "expected a reduction");
  if (failed(kernel.findLane()))
    return failure();
  ReductionShape shape(kernel);
  main = shape.main;
  if (shape.alongRow)
    return refuse(kernel, "expected sums along an axis that is not contiguous");
  if (!shape.inTheWay.empty())
    return refuse(kernel, shape.inTheWay);
  if (kernel.row.empty() && ArrayRef<int64_t>(kernel.shape) != shapeOf(main.getY()))
    return refuse(kernel, "expected results of the sums' shape");
  PointVectors chosen(kernel);
  if (chosen.ragged)
    return refuse(kernel, "expected rows of whole vectors");
  lanes = chosen.lanes;
  outer = chosen.outer;
  vector = chosen.vector;
  units = outer * (lanes / vector);
  extent = shape.extent;
  int64_t bytes = 0; // of shared memory, for one thread
  for (ReduceOp op : kernel.reductions) {
    accumulators.push_back(gatheringAccumulator(op, /*everyElement=*/true));
    bytes += vector * bytesOf(accumulators.back().type);
  }
  constexpr int64_t mostBytes = 64; // a block of 256 threads leaves room for more of them
  if (bytes > mostBytes)
    return refuse(kernel,
                  "expected running values of at most " + Twine(mostBytes) + " bytes a thread, got " + Twine(bytes));
  chooseThreads(kernel.device);
  return down > 1 ? success() : refuse(kernel, "expected sums that leave waves of one thread each unfilled");
}

/// As many threads a sum as take least time, waves counted. Whole warps walk neighbouring points. Every thread has as
/// many terms.
void ShortColumns::chooseThreads(const DeviceDescription &device) {
  constexpr int64_t most = 256, residents[] = {3, 4, 5, 6, 8};
  double least = INFINITY;
  for (int64_t below = 1; below <= most / device.warpThreads; ++below) {
    if (extent % below != 0 || (below > 1 && extent / below < 2))
      continue;
    const auto beside = static_cast<int64_t>(llvm::bit_floor(static_cast<uint64_t>(most / below)));
    const int64_t threads = beside * below, turns = extent / below;
    SmallVector<int64_t> resident;
    for (int64_t count : residents)
      resident.push_back(count * most / threads);
    // The costs of a thread's beginning, and of sums between threads, in terms.
    const double own = below > 1 ? 2 : 1, terms = static_cast<double>(turns);
    double time = timeOfWaves(device, ceilDiv(units, beside), (terms + own) * static_cast<double>(threads), resident);
    if (!isMuchLess(time, least))
      continue;
    least = time;
    across = beside;
    down = below;
  }
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

ShortColumns::Place ShortColumns::placeOf(Frame &frame) const {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Place place;
  place.x = arith::RemUIOp::create(b, frame.thread, e.indexConstant(across));
  place.y = arith::DivUIOp::create(b, frame.thread, e.indexConstant(across));
  Value first = arith::MulIOp::create(b, frame.block, e.indexConstant(across));
  place.number = arith::AddIOp::create(b, first, place.x);
  if (units % across == 0)
    return place;
  // Threads without points repeat the first ones, and write nothing: all of a block meet at its barrier.
  place.used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, place.number, e.indexConstant(units));
  place.number = arith::SelectOp::create(b, place.used, place.number, e.indexConstant(0));
  return place;
}

/// Indices of the iteration space for the points of vector `number`, known in the scope that is being filled.
SmallVector<IndexExpr> ShortColumns::pointAt(GpuKernelBuilder &kernel, ElementEmitter &e, Value number) const {
  Value first = vector > 1 ? Value(arith::MulIOp::create(e.b, number, e.indexConstant(vector))) : number;
  auto [beside, inner] = e.space.divide(e.variable(first, units * vector, vector), lanes);
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(beside, kernel.shape, kernel.outerAxes(e), at);
  if (!kernel.lane.empty())
    e.spread(inner, kernel.shape, kernel.lane, at);
  return at;
}

/// A thread's sums over its terms, every `down`-th.
SmallVector<Value> ShortColumns::walk(GpuKernelBuilder &kernel, Frame &frame, const Place &place) const {
  ElementEmitter &e = frame.e;
  MathBuilder m(e);
  ArrayRef<int64_t> space = shapeOf(ReduceOp(main).getX());
  SmallVector<int64_t> order = walkOrder(e, space, ReduceOp(main).getAxes()), kept = keptAxes(main);
  SmallVector<IndexExpr> at = pointAt(kernel, e, place.number), from(space.size());
  for (auto [i, axis] : llvm::enumerate(kept))
    from[axis] = kernel.row.empty() ? at[i] : at[axis];
  IndexExpr y = e.variable(place.y, down);
  const int64_t turns = extent / down;
  SmallVector<Value> sums;
  for (const Accumulator &a : accumulators)
    sums.push_back(e.splat(a.identity(e, a.type), vector));
  // Few enough terms are added in FP32.
  int64_t terms = 1;
  if (llvm::any_of(kernel.reductions, addsTogether))
    for (terms = 4; turns % terms != 0;)
      terms /= 2;
  // Adds the term at `from` to the sums, or to those of few terms.
  auto addTerm = [&](MutableArrayRef<Value> next, MutableArrayRef<Value> together) {
    for (auto [op, a, sum, some] : llvm::zip_equal(kernel.reductions, accumulators, next, together)) {
      bool isNarrow = terms > 1 && addsTogether(op);
      Value value = e.element(op.getX(), from), &into = isNarrow ? some : sum;
      if (isa<FloatType>(a.type))
        value = m.toFloat(value, isNarrow ? accumulatorOf(op).type : a.type);
      value = e.splat(value, vector);
      into = into ? a.combine(e, into, value) : value;
    }
  };
  auto storeElements = [&] {
    SmallVector<KernelNest::Result> results;
    for (auto [number, output] : llvm::enumerate(kernel.yielded()))
      if (!kernel.row.empty() && !kernel.isRowLevel(output))
        results.push_back({e.element(output, from), from, static_cast<unsigned>(number)});
    kernel.store(e, kernel.outputBuffers(frame.function), results, place.used);
  };
  auto walkTerms = [&](const IndexExpr &k, ValueRange carried) {
    SmallVector<Value> next(carried), together(carried.size());
    for (int64_t i = 0; i < terms; ++i) {
      IndexExpr turn = e.space.add(e.space.scale(k, terms), IndexExpr(i));
      e.spread(e.space.add(e.space.scale(turn, down), y), space, order, from);
      addTerm(next, together);
      storeElements();
    }
    for (auto [a, sum, some] : llvm::zip_equal(accumulators, next, together))
      if (some)
        sum = a.combine(e, sum, m.toFloat(some, a.type));
    return next;
  };
  return e.loop(e.indexConstant(0), e.indexConstant(turns / terms), turns / terms, 1, sums, walkTerms);
}

void ShortColumns::emitThread(GpuKernelBuilder &kernel, Frame &frame) const {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Place place = placeOf(frame);
  ColumnSums sums(kernel, accumulators, down, vector);
  sums.leave(frame, across, place.x, place.y, walk(kernel, frame, place));
  Value writes = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, place.y, e.indexConstant(0));
  if (place.used)
    writes = arith::AndIOp::create(b, writes, place.used);
  e.guarded(writes, [&] {
    // Indices of this scope: outputs that depend on the sums are the first thread's alone.
    SmallVector<IndexExpr> at = pointAt(kernel, e, place.number);
    for (int64_t axis : kernel.kept)
      sums.point.push_back(at[axis]);
    e.strategy = &sums;
    kernel.storeOutputs(e, kernel.outputBuffers(frame.function), at, /*rowLevel=*/!kernel.row.empty());
    e.strategy = nullptr;
  });
}

void ShortColumns::emit(GpuKernelBuilder &kernel) {
  if (!kernel.laneKept())
    kernel.lane.clear();
  kernel.laneInRow = false;
  kernel.launch(name, {ceilDiv(units, across), 1, 1}, across * down, [&](Frame &frame) { emitThread(kernel, frame); });
  kernel.markInPlace(/*reductionsToo=*/!kernel.row.empty());
}

std::unique_ptr<GpuSchedule> mpt::makeShortColumnsSchedule() { return std::make_unique<ShortColumns>(); }
