// SPDX-License-Identifier: Apache-2.0
// Schedule: sums over many elements for few points, shared out over slices of the elements. One launch makes the
// slices' sums, another adds them up and does the rest. The order of additions is fixed.
#include "ReductionShape.h"
#include "RowLaunch.h"
#include "Schedules.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/GPU/Waves.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

class Columns : public GpuSchedule {
public:
  Columns() : GpuSchedule("columns") {}

  LogicalResult match(GpuKernelBuilder &kernel) override;
  void emit(GpuKernelBuilder &kernel) override;

private:
  using Frame = GpuKernelBuilder::Frame;
  /// The kernel and the values that one launch's body is built from.
  struct Slice {
    GpuKernelBuilder &kernel;
    Frame &frame;
    ElementEmitter &e;
    SmallVector<Value> buffers; ///< of partial sums
    IndexExpr number, begin;    ///< of the slice, and its first element
    SmallVector<int64_t> order, keptOrder;
    SmallVector<IndexExpr> from; ///< index of an element of the sums' operand
  };
  /// A thread's place in its block.
  struct Place {
    Value x, y; ///< beside each other over points, and below each other over elements
    Value used; ///< null where all columns exist
  };

  void measure(GpuKernelBuilder &kernel);
  void chooseThreads(GpuKernelBuilder &kernel);
  int64_t turnsOfSlice(GpuKernelBuilder &kernel, int64_t turns) const;
  void emitSlice(GpuKernelBuilder &kernel, Frame &frame);
  bool takesSquares(GpuKernelBuilder &kernel) const;
  int64_t contiguousExtent(GpuKernelBuilder &kernel) const;
  void spread(Slice &slice, const IndexExpr &position, int64_t number) const;
  IndexExpr pointOf(Slice &slice) const;
  SmallVector<KernelNest::Result> elementsOf(Slice &slice) const;
  void emitAlongRow(Slice &slice) const;
  Place placeOf(Slice &slice) const;
  Value countOfThread(Slice &slice, const IndexExpr &start) const;
  int64_t termsTogether(GpuKernelBuilder &kernel) const;
  SmallVector<Value> addTerms(Slice &slice, const Place &place, const IndexExpr &first, int64_t terms,
                              ValueRange carried) const;
  SmallVector<Value> walkColumn(Slice &slice, const Place &place) const;
  void combineColumns(Slice &slice, const Place &place, ArrayRef<Value> sums) const;
  void storeColumn(Slice &slice, Value x, Value memory, const Accumulator &a, Value buffer) const;

  ReduceOp main;
  ArrayRef<int64_t> space; ///< of the sums' operand
  SmallVector<int64_t> keptDims;
  SmallVector<Accumulator> accumulators;
  SmallVector<unsigned> elements; ///< outputs that the first launch writes on its way
  int64_t tile = 1;               ///< elements that a thread takes at a time: 4 of two lines, whose windows overlap
  int64_t extent = 0, points = 0; ///< tiles of a sum, and sums
  bool alongRow = false;
  unsigned vector = 1;
  int64_t block = 256, across = 1, down = 1; ///< threads of a block, and how they lie
  int64_t laneBytes = 0, elementBytes = 0;   ///< of a lane's running values, and read for an element
  int64_t tiles = 0, slices = 1, length = 0; ///< blocks in x and y; elements of a slice
  llvm::SetVector<Value> guards;             ///< columns where all of them hold have sums that nothing reads
};

/// Conditions of the results' shape under all of which no reduction is wanted: each is read by a select on one alone.
/// Empty where there are others.
llvm::SetVector<Value> guardsOf(ArrayRef<ReduceOp> reductions) {
  llvm::SetVector<Value> guards;
  for (ReduceOp op : reductions) {
    auto select = op.getY().hasOneUse() ? dyn_cast<SelectOp>(*op.getY().getUsers().begin()) : SelectOp();
    if (!select || select.getOnFalse() != op.getY() || select.getOnTrue() == op.getY())
      return {};
    guards.insert(select.getCondition());
  }
  ReduceOp first = reductions.front();
  bool wait = llvm::any_of(guards, [&](Value guard) {
    Operation *source = guard.getDefiningOp();
    return !source || shapeOf(guard) != shapeOf(first.getY()) ||
           llvm::any_of(reductions, [&](ReduceOp op) { return dependsOn(source, op); });
  });
  return wait ? llvm::SetVector<Value>() : guards;
}

} // namespace

//===----------------------------------------------------------------------===//
// Match
//===----------------------------------------------------------------------===//

LogicalResult Columns::match(GpuKernelBuilder &kernel) {
  if (kernel.reductions.empty())
    return refuse(kernel, "expected a reduction");
  if (failed(kernel.findLane()))
    return failure();
  ReductionShape shape(kernel);
  if (!shape.worthSharing)
    return refuse(kernel, "expected at least 64 terms a sum and 8192 in all, got " + Twine(shape.extent) + " for " +
                              Twine(shape.points) + " points");
  if (shape.alongRow && !shape.fewLongRows)
    return refuse(kernel, "expected columns, or fewer than " + Twine(shape.busy) + " long rows");
  if (!shape.inTheWay.empty())
    return refuse(kernel, shape.inTheWay);
  if (kernel.row.empty() && !shape.alongRow && shape.points >= 512 * shape.busy)
    return refuse(kernel, "expected fewer points than keep every thread busy, got " + Twine(shape.points));
  return success();
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

void Columns::measure(GpuKernelBuilder &kernel) {
  main = kernel.reductions.front();
  space = shapeOf(main.getX());
  extent = reducedExtent(main);
  points = countOf(main.getY());
  int64_t fastest = kernel.fastestAxis(space);
  alongRow = llvm::is_contained(main.getAxes(), fastest);
  SmallVector<int64_t> sizes;
  for (MemRefType type : kernel.inputs)
    if (type.getShape() == space)
      sizes.push_back(bytesOf(type.getElementType()));
  vector = kernel.stridesOf(space)[fastest] == 1 ? kernel.vectorWidth(contiguousExtent(kernel), sizes) : 1;
  keptDims = keptAxes(main);
  for (int64_t size : sizes)
    elementBytes += size;
  elementBytes = std::max<int64_t>(elementBytes, 1);
  for (ReduceOp op : kernel.reductions) {
    accumulators.push_back(gatheringAccumulator(op, /*everyElement=*/true));
    laneBytes += bytesOf(accumulators.back().type);
  }
  // Half the registers of a thread of 96 for running values: enough warps stay to wait for memory.
  while (vector > 1 && vector * laneBytes > 192)
    vector /= 2;
  if (takesSquares(kernel)) {
    tile = 4;
    extent /= tile;
  }
}

/// Elements along which vectors lie: of the fastest axis, and of all axes that continue it where a sum takes them too
/// and nothing is read by the axes' own indices.
int64_t Columns::contiguousExtent(GpuKernelBuilder &kernel) const {
  int64_t fastest = kernel.fastestAxis(space), along = space[fastest];
  SmallVector<int64_t> strides = kernel.stridesOf(space);
  bool alike = llvm::all_of(kernel.inputs, [&](MemRefType type) {
    SmallVector<int64_t> own;
    int64_t offset;
    return type.getNumElements() == 1 ||
           (type.getShape() == space && succeeded(type.getStridesAndOffset(own, offset)) && own == strides);
  });
  if (!alongRow || !alike)
    return along;
  ReduceOp sum = main;
  for (bool grown = true; grown;) {
    grown = false;
    for (int64_t axis : sum.getAxes())
      if (space[axis] > 1 && strides[axis] == along) {
        along *= space[axis];
        grown = true;
      }
  }
  return along;
}

/// Whether the elements of a square read the same ones, as pooling's gradients do with their windows. Accesses stay
/// whole lines of the memory, which the columns of a block fill.
bool Columns::takesSquares(GpuKernelBuilder &kernel) const {
  constexpr int64_t line = 64; // bytes
  ReduceOp sum = main;
  if (!kernel.readsWindows || alongRow || sum.getAxes().size() < 2 || points * bytesOf(elementOf(sum.getX())) < line)
    return false;
  SmallVector<int64_t> strides = kernel.stridesOf(space), axes(sum.getAxes());
  llvm::sort(axes, [&](int64_t a, int64_t b) { return std::pair(-strides[a], a) < std::pair(-strides[b], b); });
  return space[axes.back()] % 2 == 0 && space[axes[axes.size() - 2]] % 2 == 0;
}

void Columns::chooseThreads(GpuKernelBuilder &kernel) {
  if (!alongRow)
    while (across < kernel.device.warpThreads && across * vector < points)
      across *= 2;
  down = block / across;
  int64_t perTurn = alongRow ? block * vector : down;
  tiles = alongRow ? points : ceilDiv(points, across * static_cast<int64_t>(vector));
  int64_t turns = ceilDiv(extent, perTurn);
  length = turnsOfSlice(kernel, turns) * perTurn;
  slices = ceilDiv(extent, length);
}

/// Turns of a thread. Slices are as many as make the last wave of blocks a full one, whether two, three, four or
/// five blocks share a multiprocessor: registers decide that, which nobody knows yet.
int64_t Columns::turnsOfSlice(GpuKernelBuilder &kernel, int64_t turns) const {
  // A block's beginning and end, in turns, beside the bytes of its sums, which another launch reads again.
  constexpr size_t manyOps = 32; // whose values leave no registers for a fifth block
  const bool isLong = kernel.body().getOperations().size() > manyOps;
  constexpr int64_t counts[] = {2, 3, 4, 5};
  const ArrayRef<int64_t> residents = ArrayRef<int64_t>(counts).drop_back(isLong);
  const double own = 1 + 2.0 * static_cast<double>(across * laneBytes) / static_cast<double>(block * elementBytes);
  // A condition is computed once a thread, of FP64 values that take as long to convert as the values of two turns.
  const int64_t fewest = guards.empty() ? 4 : 16;
  int64_t most =
      std::max<int64_t>(1, std::min(turns / fewest, ceilDiv(20 * kernel.device.models.back().multiprocessors, tiles)));
  int64_t best = turns;
  double least = INFINITY;
  for (int64_t count = 1; count <= most; ++count) {
    int64_t each = ceilDiv(turns, count), blocks = tiles * ceilDiv(turns, each);
    double time = timeOfWaves(kernel.device, blocks, static_cast<double>(each) + own, residents);
    if (isMuchLess(time, least)) {
      least = time;
      best = each;
    }
  }
  return best;
}

//===----------------------------------------------------------------------===//
// The slices' sums
//===----------------------------------------------------------------------===//

/// Sets the summed indices of `slice.from` to element `number` of the tile at `position`.
void Columns::spread(Slice &slice, const IndexExpr &position, int64_t number) const {
  if (tile == 1)
    return slice.e.spread(position, space, slice.order, slice.from);
  SmallVector<int64_t> halves(space);
  ArrayRef<int64_t> inner = ArrayRef<int64_t>(slice.order).take_back(2);
  for (int64_t axis : inner)
    halves[axis] /= 2;
  slice.e.spread(position, halves, slice.order, slice.from);
  IndexSpace &indices = slice.e.space;
  for (auto [axis, bit] : {std::pair(inner[0], number / 2), std::pair(inner[1], number % 2)})
    slice.from[axis] = indices.add(indices.scale(slice.from[axis], 2), IndexExpr(bit));
}

/// The number of the result that `slice.from` adds to.
IndexExpr Columns::pointOf(Slice &slice) const {
  SmallVector<IndexExpr> at;
  for (int64_t axis : keptDims)
    at.push_back(slice.from[axis]);
  return slice.e.space.linearize(at, shapeOf(ReduceOp(main).getY()));
}

SmallVector<KernelNest::Result> Columns::elementsOf(Slice &slice) const {
  SmallVector<KernelNest::Result> results;
  for (unsigned i : elements)
    results.push_back({slice.e.element(slice.kernel.yielded()[i], slice.from), slice.from, i});
  return results;
}

/// A block a row's slice.
void Columns::emitAlongRow(Slice &slice) const {
  ElementEmitter &e = slice.e;
  ArrayRef<ReduceOp> reductions = slice.kernel.reductions;
  Team team(e, slice.frame.thread, block, vector, /*unroll=*/0);
  e.spread(e.variable(slice.frame.block, points), space, slice.keptOrder, slice.from);
  // Elements are written when the last sum has read its operand at them.
  auto visit = [&](ReduceOp op, const IndexExpr &position) {
    spread(slice, position, 0);
    Value value = e.element(op.getX(), slice.from);
    if (op == reductions.back())
      slice.kernel.store(e, slice.kernel.outputBuffers(slice.frame.function), elementsOf(slice));
    return value;
  };
  SmallVector<Value> sums = team.reduceRange(reductions, accumulators, slice.begin, length, extent, visit);
  e.guarded(team.isFirst(), [&] {
    for (auto [sum, buffer] : llvm::zip_equal(sums, slice.buffers))
      e.store(sum, buffer, {pointOf(slice), slice.number});
  });
  slice.frame.sharedBytes += team.sharedBytes;
}

/// Sets the kept indices of `slice.from` to the thread's columns.
Columns::Place Columns::placeOf(Slice &slice) const {
  ElementEmitter &e = slice.e;
  ImplicitLocOpBuilder &b = e.b;
  Value x = arith::RemUIOp::create(b, slice.frame.thread, e.indexConstant(across));
  Value y = arith::DivUIOp::create(b, slice.frame.thread, e.indexConstant(across));
  Value first = arith::MulIOp::create(b, slice.frame.block, e.indexConstant(across)), used;
  Value column = arith::AddIOp::create(b, first, x);
  if (points % (across * vector) != 0) {
    used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, column, e.indexConstant(points / vector));
    column = arith::SelectOp::create(b, used, column, e.indexConstant(0));
  }
  if (vector > 1)
    column = arith::MulIOp::create(b, column, e.indexConstant(vector));
  e.spread(e.variable(column, points, vector), space, slice.keptOrder, slice.from);
  return {x, y, used};
}

/// How many elements a thread adds up: from `start`, every `down`-th before the end of the slice and of the extent.
Value Columns::countOfThread(Slice &slice, const IndexExpr &start) const {
  ElementEmitter &e = slice.e;
  ImplicitLocOpBuilder &b = e.b;
  Value left = arith::SubIOp::create(b, e.indexConstant(extent + down - 1), e.index(start));
  Value count = arith::DivSIOp::create(b, left, e.indexConstant(down));
  count =
      arith::MinSIOp::create(b, arith::MaxSIOp::create(b, count, e.indexConstant(0)), e.indexConstant(length / down));
  if (guards.empty())
    return count;
  SmallVector<IndexExpr> at;
  for (int64_t axis : keptDims)
    at.push_back(slice.from[axis]);
  Value all;
  auto demand = [&](Value holds) { all = all ? Value(arith::AndIOp::create(b, all, holds)) : holds; };
  for (Value guard : guards) {
    Value known = e.element(guard, at);
    for (unsigned i = 0; vector > 1 && i < vector; ++i)
      demand(vector::ExtractOp::create(b, known, int64_t(i)));
    if (vector == 1)
      demand(known);
  }
  return arith::SelectOp::create(b, all, e.indexConstant(0), count);
}

/// Terms that are added before they join: conversions to FP64 are a sixteenth as fast as additions. The elements of all
/// of them are read at a time, which fusions that are long or read many elements have no registers for.
int64_t Columns::termsTogether(GpuKernelBuilder &kernel) const {
  constexpr size_t fewOps = 24, fewAccesses = 12;
  if (tile > 1 || llvm::none_of(kernel.reductions, addsTogether) || kernel.accesses.size() > fewAccesses)
    return 1;
  return kernel.body().getOperations().size() > fewOps ? 2 : 4;
}

/// `terms` tiles, `down` apart, from `first` on. A tile's reads come before its writes: neighbours share them.
SmallVector<Value> Columns::addTerms(Slice &slice, const Place &place, const IndexExpr &first, int64_t terms,
                                     ValueRange carried) const {
  ElementEmitter &e = slice.e;
  MathBuilder m(e);
  ValueRange buffers = slice.kernel.outputBuffers(slice.frame.function);
  SmallVector<Value> sums(carried), together(carried.size());
  SmallVector<KernelNest::Result> results;
  for (int64_t i = 0; i < terms * tile; ++i) {
    spread(slice, e.space.add(first, IndexExpr(i / tile * down)), i % tile);
    for (auto [op, a, sum, some] : llvm::zip_equal(slice.kernel.reductions, accumulators, sums, together)) {
      bool isNarrow = terms * tile > 1 && addsTogether(op);
      Value value = e.element(op.getX(), slice.from), &into = isNarrow ? some : sum;
      if (isa<FloatType>(a.type))
        value = m.toFloat(value, isNarrow ? accumulatorOf(op).type : a.type);
      value = e.splat(value, vector);
      into = into ? a.combine(e, into, value) : value;
    }
    llvm::append_range(results, elementsOf(slice));
    if ((i + 1) % tile != 0)
      continue;
    slice.kernel.store(e, buffers, results, place.used);
    results.clear();
  }
  for (auto [a, sum, some] : llvm::zip_equal(accumulators, sums, together))
    if (some)
      sum = a.combine(e, sum, m.toFloat(some, a.type));
  return sums;
}

/// A thread's sums.
SmallVector<Value> Columns::walkColumn(Slice &slice, const Place &place) const {
  ElementEmitter &e = slice.e;
  ImplicitLocOpBuilder &b = e.b;
  IndexExpr start = e.space.add(slice.begin, e.variable(place.y, down));
  Value count = countOfThread(slice, start), first = e.indexConstant(0);
  SmallVector<Value> sums;
  for (const Accumulator &a : accumulators)
    sums.push_back(e.splat(a.identity(e, a.type), vector));
  auto walk = [&](Value end, int64_t extent, int64_t terms) {
    sums = e.loop(first, end, extent, 1, sums, [&](const IndexExpr &k, ValueRange carried) {
      return addTerms(slice, place, e.space.add(e.space.scale(k, terms * down), start), terms, carried);
    });
  };
  const int64_t most = length / down, terms = termsTogether(slice.kernel);
  if (terms > 1 && most >= terms) {
    Value whole = arith::DivUIOp::create(b, count, e.indexConstant(terms));
    walk(whole, most / terms, terms);
    first = arith::MulIOp::create(b, whole, e.indexConstant(terms));
  }
  walk(count, most, 1);
  return sums;
}

/// Adds up the threads' sums in `memory` below each other in a column, and stores the total.
void Columns::storeColumn(Slice &slice, Value place, Value memory, const Accumulator &a, Value buffer) const {
  ElementEmitter &e = slice.e;
  ImplicitLocOpBuilder &b = e.b;
  auto level = [&](Value y) {
    SmallVector<Value> parts;
    for (unsigned i = 0; i < vector; ++i) {
      Value spot = arith::AddIOp::create(b, place, e.indexConstant(i));
      Value part = memref::LoadOp::create(b, memory, ValueRange{y, spot});
      parts.push_back(a.type.isInteger(1) ? Value(arith::TruncIOp::create(b, b.getI1Type(), part)) : part);
    }
    return parts;
  };
  SmallVector<Value> parts = e.loop(e.indexConstant(1), e.indexConstant(down), down, 1, level(e.indexConstant(0)),
                                    [&](const IndexExpr &i, ValueRange carried) {
                                      SmallVector<Value> next = level(e.index(i));
                                      for (auto [value, sum] : llvm::zip_equal(next, carried))
                                        value = a.combine(e, sum, value);
                                      return next;
                                    });
  Value sum =
      vector > 1 ? Value(vector::FromElementsOp::create(b, VectorType::get(vector, a.type), parts)) : parts.front();
  e.store(sum, buffer, {pointOf(slice), slice.number});
}

/// Columns of the block's threads, one below the other, through shared memory.
void Columns::combineColumns(Slice &slice, const Place &place, ArrayRef<Value> sums) const {
  ElementEmitter &e = slice.e;
  ImplicitLocOpBuilder &b = e.b;
  SmallVector<Value> shared;
  for (auto [sum, a] : llvm::zip_equal(sums, accumulators)) {
    int64_t lanes = across * static_cast<int64_t>(vector);
    Value memory = sharedBuffer(e, {down, lanes}, a.type, slice.frame.sharedBytes);
    shared.push_back(memory);
    Value first = arith::MulIOp::create(b, place.x, e.indexConstant(vector));
    for (unsigned i = 0; i < vector; ++i) {
      Value part = vector > 1 ? Value(vector::ExtractOp::create(b, sum, int64_t(i))) : sum;
      if (a.type.isInteger(1))
        part = arith::ExtUIOp::create(b, b.getI8Type(), part);
      memref::StoreOp::create(b, part, memory,
                              ValueRange{place.y, arith::AddIOp::create(b, first, e.indexConstant(i))});
    }
  }
  gpu::BarrierOp::create(b);
  Value writes = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, place.y, e.indexConstant(0));
  if (place.used)
    writes = arith::AndIOp::create(b, writes, place.used);
  e.guarded(writes, [&] {
    Value first = arith::MulIOp::create(b, place.x, e.indexConstant(vector));
    for (auto [memory, a, buffer] : llvm::zip_equal(shared, accumulators, slice.buffers))
      storeColumn(slice, first, memory, a, buffer);
  });
}

void Columns::emitSlice(GpuKernelBuilder &kernel, Frame &frame) {
  ElementEmitter &e = frame.e;
  Slice slice{kernel, frame, e, PartialBuffers{kernel.reductions, slices}.all(frame), {}, {}, {}, {}, {}};
  Value number = gpu::BlockIdOp::create(e.b, gpu::Dimension::y);
  slice.number = e.variable(number, slices);
  slice.begin = e.space.scale(slice.number, length);
  slice.order = walkOrder(e, space, main.getAxes());
  slice.keptOrder = walkOrder(e, space, keptDims);
  slice.from.resize(space.size());
  if (alongRow)
    return emitAlongRow(slice);
  Place place = placeOf(slice);
  combineColumns(slice, place, walkColumn(slice, place));
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

void Columns::emit(GpuKernelBuilder &kernel) {
  measure(kernel);
  bool withElements = !kernel.row.empty();
  if (withElements)
    for (auto [i, output] : llvm::enumerate(kernel.yielded())) {
      kernel.written.push_back(!kernel.isRowLevel(output));
      if (kernel.written.back())
        elements.push_back(i);
    }
  // Threads of columns whose sums are known already have nothing to walk.
  guards = alongRow || !elements.empty() ? llvm::SetVector<Value>() : guardsOf(kernel.reductions);
  chooseThreads(kernel);
  PartialBuffers partial{kernel.reductions, slices};
  kernel.info.scratchBytes = partial.bytes();
  kernel.launch("columns", {tiles, slices, 1}, block, [&](Frame &frame) { emitSlice(kernel, frame); });
  if (!guards.empty()) {
    SmallVector<int64_t> guarded;
    for (auto [i, type] : llvm::enumerate(kernel.inputs))
      if (type.getNumElements() == points * extent * tile)
        guarded.push_back(static_cast<int64_t>(i));
    setAttr<MPTDialect::GuardedAttrHelper>(kernel.info.launches.front().function,
                                           kernel.builder.getDenseI64ArrayAttr(guarded));
  }
  if (withElements) {
    kernel.markInPlace(/*reductionsToo=*/true);
    // The second launch is one of the results' points.
    kernel.shape = SmallVector<int64_t>(shapeOf(main.getY()));
    kernel.row.clear();
    kernel.kept.clear();
    for (int64_t i = 0, rank = kernel.shape.size(); i < rank; ++i)
      kernel.kept.push_back(i);
  }
  RowLaunch(kernel, slices, &partial).emit("columns-sum");
}

std::unique_ptr<GpuSchedule> mpt::makeColumnsSchedule() { return std::make_unique<Columns>(); }
