// SPDX-License-Identifier: Apache-2.0
// Schedules of reductions: a team of threads a row in one pass, and columns (or a few long rows) in two launches.
#include "KernelBuilder.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Sums that an earlier launch left in pieces: buffer number i, [point][slice], holds those of the i-th reduction.
class PartialSums : public ReductionStrategy {
public:
  PartialSums(Team &team, ArrayRef<ReduceOp> reductions, ArrayRef<Value> buffers, int64_t slices)
      : team(team), reductions(reductions), buffers(buffers), slices(slices) {}

  std::optional<SmallVector<Value>> reduce(ElementEmitter &e, MutableArrayRef<ReduceOp> group,
                                           ArrayRef<IndexExpr> at) override {
    SmallVector<Accumulator> accumulators;
    for (ReduceOp op : group)
      accumulators.push_back(gatheringAccumulator(op, /*everyElement=*/true));
    SmallVector<Value> results = team.reduceAll(group, accumulators, slices, [&](ReduceOp op, IndexExpr slice) {
      size_t number = llvm::find(reductions, op) - reductions.begin();
      IndexExpr point = e.space.linearize(at, shapeOf(op.getY()));
      return e.load(buffers[number], {point, slice});
    });
    for (auto [op, value] : llvm::zip_equal(group, results))
      value = finishReduction(e, op, value);
    return results;
  }

private:
  Team &team;
  ArrayRef<ReduceOp> reductions;
  ArrayRef<Value> buffers;
  int64_t slices;
};

/// The most reductions in `body` that wait for each other.
int64_t chainLength(Block &body) {
  llvm::DenseMap<Value, int64_t> length;
  int64_t most = 0;
  for (Operation &op : body) {
    int64_t before = 0;
    for (Value operand : op.getOperands())
      before = std::max(before, length.lookup(operand));
    before += isa<ReduceOp>(op);
    most = std::max(most, before);
    for (Value result : op.getResults())
      length[result] = before;
  }
  return most;
}

} // namespace

/// The elements of a row that `team` holds after its sums, written one by one. `writer` is the same team by other
/// numbers, so that of the sums' computations only the row itself lives on: comparisons with a position, for one, would
/// take a register an element.
void GpuKernelBuilder::storeKeptRow(Frame &frame, Team &team, ArrayRef<int64_t> order, SmallVector<IndexExpr> at,
                                    Value used, Team writer) {
  ElementEmitter &e = frame.e;
  SmallVector<Value> streams;
  for (auto [argument, type] : llvm::zip_equal(body().getArguments(), inputs))
    if (type.getShape() == ArrayRef<int64_t>(shape))
      streams.push_back(argument);
  SmallVector<IndexExpr> positions;
  team.forEach(extentOf(row), [&](IndexExpr position, Value) { positions.push_back(position); });
  auto known = positions.begin();
  writer.forEach(extentOf(row), [&](IndexExpr position, Value inside) {
    SmallVector<Value> values;
    e.spread(*known++, shape, order, at);
    for (Value stream : streams)
      values.push_back(e.element(stream, at));
    e.spread(position, shape, order, at);
    for (auto [stream, value] : llvm::zip_equal(streams, values))
      e.define(stream, at, value);
    if (used)
      inside = inside ? Value(arith::AndIOp::create(e.b, used, inside)) : used;
    store(e, outputBuffers(frame.function), outputsAt(e, at, /*rowLevel=*/false), inside);
  });
}

/// Teams of 1 to 512 threads, a row each; `partial`: the rows' sums lie in scratch, in pieces.
void GpuKernelBuilder::rows(int64_t extent, StringRef schedule, bool partial) {
  bool vectors = laneInRow && !row.empty();
  int64_t innermost = vectors ? extentOf(lane) : 1;
  if (row.empty() && !partial) {
    // The rows are those of the reductions' operands, which reshapes and gathers may scatter: their own strides tell.
    ArrayRef<int64_t> space = shapeOf(reductions.front().getX());
    int64_t axis = fastestAxis(space);
    if (axis >= 0 && stridesOf(space)[axis] == 1 && llvm::is_contained(reductions.front().getAxes(), axis))
      innermost = space[axis];
  }
  SmallVector<int64_t> sizes;
  int64_t streams = 1;
  for (MemRefType type : inputs)
    if (type.getNumElements() >= extent) {
      sizes.push_back(bytesOf(type.getElementType()));
      ++streams;
    }
  unsigned vector = partial ? 1 : vectorWidth(innermost, sizes);
  // Many sums beside each other: each has its own values, so that more registers a thread are wanted than 512 threads
  // leave.
  bool many = reductions.size() > 4;
  int64_t mostThreads = many ? target.maxThreads : 2 * target.maxThreads;
  if (many)
    vector = std::min(vector, 4u);
  lane.clear();
  laneInRow = false;
  int64_t points = extentOf(kept), pieces = ceilDiv(extent, vector);
  // Values that a thread may keep of each stream.
  int64_t unroll = std::clamp<int64_t>(96 / streams, 8, 32);
  // One operand that only sums read: half of a thread's registers hold the row.
  if (streams == 2 && llvm::all_of(yielded(), [&](Value output) { return isRowLevel(output) || row.empty(); }))
    unroll = 64;
  // A longer row that the sums read once, of which nothing else has to be kept: as many as the registers of the largest
  // team hold, since it would be read again for every sum and for what follows.
  constexpr int64_t mostKept = 104;
  auto heldBy = [&](int64_t threads) { return ceilDiv(pieces, threads) * vector; };
  bool keepsLongRow = streams == 2 && reductions.size() <= 3 && chainLength(body()) <= 2 &&
                      heldBy(mostThreads) > unroll && heldBy(mostThreads) <= mostKept;
  if (keepsLongRow)
    unroll = mostKept;
  // So do several sums over rows that no team keeps.
  if (reductions.size() > 3 && extent > mostThreads * unroll)
    mostThreads = target.maxThreads;
  int64_t threads = 1;
  while (threads < 32 && threads < pieces)
    threads *= 2;
  while (threads >= 32 && threads < mostThreads && heldBy(threads) > unroll)
    threads *= 2;
  // Few rows: more threads each.
  while (threads >= 32 && threads < mostThreads && pieces >= 2 * threads &&
         points * threads < 512 * target.multiprocessors)
    threads *= 2;
  // Loops keep one sum's values from waiting for another's.
  if (many)
    unroll = 0;
  int64_t together =
      std::max<int64_t>(1, std::max<int64_t>(32, points >= 4 * target.multiprocessors ? 128 : 32) / threads);
  int64_t passes = 1;
  launch(schedule, {ceilDiv(points, together), 1, 1}, threads * together, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    Value member = frame.thread, number = frame.block, used;
    if (together > 1) {
      member = arith::RemUIOp::create(b, frame.thread, e.indexConstant(threads));
      Value first = arith::MulIOp::create(b, frame.block, e.indexConstant(together));
      number = arith::AddIOp::create(b, first, arith::DivUIOp::create(b, frame.thread, e.indexConstant(threads)));
      if (points % together != 0) {
        // Teams without a row repeat the first one, and write nothing: whole warps take part in every exchange.
        used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, e.indexConstant(points));
        number = arith::SelectOp::create(b, used, number, e.indexConstant(0));
      }
    }
    Team team(e, member, threads, vector, unroll);
    SmallVector<Value> buffers;
    if (partial)
      for (unsigned i = 0; i < reductions.size(); ++i)
        buffers.push_back(partialBuffer(frame, i));
    PartialSums sums(team, reductions, buffers, slices);
    e.strategy = partial ? static_cast<ReductionStrategy *>(&sums) : &team;
    auto both = [&](Value p, Value q) -> Value { return p && q ? Value(arith::AndIOp::create(b, p, q)) : p ? p : q; };
    SmallVector<IndexExpr> at(shape.size());
    e.spread(e.variable(number, points), shape, outerAxes(e), at);
    ValueRange buffers_ = outputBuffers(frame.function);
    if (row.empty()) {
      storeOutputs(e, buffers_, at, /*rowLevel=*/false, both(used, team.isFirst()));
    } else {
      // All sums come before the first write: an output may lie in the memory of an input.
      SmallVector<Result> ofRow = outputsAt(e, at, /*rowLevel=*/true);
      for (ReduceOp op : reductions) {
        if (shapeOf(op.getX()) != ArrayRef<int64_t>(shape) || op.getAxes() != ArrayRef<int64_t>(row))
          continue;
        SmallVector<IndexExpr> point;
        for (int64_t axis : kept)
          point.push_back(at[axis]);
        (void)e.element(op.getY(), point);
      }
      SmallVector<int64_t> order = walkOrder(e, shape, row);
      if (keepsLongRow && team.isUnrolled(extentOf(row))) {
        storeKeptRow(frame, team, order, at, used, Team(e, team.opaqueMember(), threads, vector, unroll));
        if (!ofRow.empty())
          store(e, buffers_, ofRow, both(used, team.isFirst()));
        frame.sharedBytes += team.sharedBytes;
        return;
      }
      // Where the row is in registers, all its reads come before its writes, which could otherwise not overlap.
      bool gather = team.isUnrolled(extentOf(row));
      SmallVector<std::pair<SmallVector<Result>, Value>> waiting;
      team.forEach(extentOf(row), [&](IndexExpr position, Value inside) {
        e.spread(position, shape, order, at);
        SmallVector<Result> results = outputsAt(e, at, /*rowLevel=*/false);
        if (gather)
          waiting.push_back({std::move(results), both(used, inside)});
        else
          store(e, buffers_, results, both(used, inside));
      });
      for (auto &[results, condition] : waiting)
        store(e, buffers_, results, condition);
      if (!ofRow.empty())
        store(e, buffers_, ofRow, both(used, team.isFirst()));
    }
    frame.sharedBytes += team.sharedBytes;
    if (!partial && !team.isUnrolled(extent))
      passes = chainLength(body()) + !row.empty();
  });
  if (passes > 1)
    setAttr<MPTDialect::PassesAttrHelper>(info.launches.back().function, builder.getI64IntegerAttr(passes));
  if (!partial)
    markInPlace(/*reductionsToo=*/!row.empty());
}

/// Scratch of reduction `number`: [point][slice].
Value GpuKernelBuilder::partialBuffer(Frame &frame, unsigned number) {
  int64_t offset = 0;
  auto bytes = [&](ReduceOp op) {
    return llvm::alignTo(countOf(op.getY()) * slices * bytesOf(gatheringAccumulator(op, true).type), 16);
  };
  for (unsigned i = 0; i < number; ++i)
    offset += bytes(reductions[i]);
  ReduceOp op = reductions[number];
  auto type = MemRefType::get({countOf(op.getY()), slices}, gatheringAccumulator(op, true).type);
  ImplicitLocOpBuilder &b = frame.e.b;
  return memref::ViewOp::create(b, type, frame.function.getArguments().back(), frame.e.indexConstant(offset),
                                ValueRange());
}

/// A condition of the results' shape under which no reduction is wanted: each is read by a select on it alone.
Value GpuKernelBuilder::guardOfReductions() {
  Value guard;
  for (ReduceOp op : reductions) {
    auto select = op.getY().hasOneUse() ? dyn_cast<SelectOp>(*op.getY().getUsers().begin()) : SelectOp();
    if (!select || select.getOnFalse() != op.getY() || select.getOnTrue() == op.getY() ||
        (guard && guard != select.getCondition()))
      return {};
    guard = select.getCondition();
  }
  Operation *source = guard.getDefiningOp();
  bool waits = !source || shapeOf(guard) != shapeOf(reductions.front().getY()) ||
               llvm::any_of(reductions, [&](ReduceOp op) { return dependsOn(source, op); });
  return waits ? Value() : guard;
}

/// Sums over many elements for few points, shared out over slices of the elements: a launch for the slices' sums and
/// one that adds them up and does the rest. The order of additions is fixed. Where the elements themselves are wanted
/// as well, the first launch writes them on its way.
void GpuKernelBuilder::columns() {
  ReduceOp main = reductions.front();
  ArrayRef<int64_t> space = shapeOf(main.getX());
  int64_t extent = reducedExtent(main), points = countOf(main.getY());
  int64_t fastest = fastestAxis(space);
  bool alongRow = llvm::is_contained(main.getAxes(), fastest);
  SmallVector<int64_t> sizes;
  for (MemRefType type : inputs)
    if (type.getShape() == space)
      sizes.push_back(bytesOf(type.getElementType()));
  unsigned vector = stridesOf(space)[fastest] == 1 ? vectorWidth(space[fastest], sizes) : 1;
  SmallVector<int64_t> keptDims = keptAxes(main);
  SmallVector<Accumulator> accumulators;
  int64_t running = 0; // bytes a lane
  for (ReduceOp op : reductions) {
    accumulators.push_back(gatheringAccumulator(op, /*everyElement=*/true));
    running += bytesOf(accumulators.back().type);
  }
  // Half the registers of a thread of 96 for running values: enough warps stay to wait for memory.
  while (vector > 1 && vector * running > 192)
    vector /= 2;

  // Threads side by side over points (x) and over elements (y).
  int64_t block = 256, across = 1;
  if (!alongRow)
    while (across < 32 && across * vector < points)
      across *= 2;
  int64_t down = block / across, perTurn = alongRow ? block * vector : down;
  int64_t tiles = alongRow ? points : ceilDiv(points, across * static_cast<int64_t>(vector));
  // Some turns for each thread, and enough blocks for all multiprocessors.
  int64_t turns = ceilDiv(extent, perTurn);
  slices = std::clamp<int64_t>(ceilDiv(4 * target.multiprocessors, tiles), 1, std::max<int64_t>(1, turns / 4));
  int64_t length = ceilDiv(turns, slices) * perTurn;
  slices = ceilDiv(extent, length);
  for (ReduceOp op : reductions)
    info.scratchBytes += llvm::alignTo(points * slices * bytesOf(gatheringAccumulator(op, true).type), 16);

  SmallVector<unsigned> elements;
  if (!row.empty()) {
    for (auto [i, output] : llvm::enumerate(yielded())) {
      written.push_back(!isRowLevel(output));
      if (written.back())
        elements.push_back(i);
    }
  }

  // Threads of columns whose sums are known already have nothing to walk.
  Value guard = alongRow || !elements.empty() ? Value() : guardOfReductions();
  launch("columns", {tiles, slices, 1}, block, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    SmallVector<Value> buffers;
    for (unsigned i = 0; i < reductions.size(); ++i)
      buffers.push_back(partialBuffer(frame, i));
    Value slice = gpu::BlockIdOp::create(b, gpu::Dimension::y);
    IndexExpr sliceNumber = e.variable(slice, slices);
    IndexExpr begin = e.space.scale(sliceNumber, length);
    SmallVector<int64_t> order = walkOrder(e, space, main.getAxes()), keptOrder = walkOrder(e, space, keptDims);
    SmallVector<IndexExpr> from(space.size());
    auto source = [&](ReduceOp op, IndexExpr position) {
      e.spread(position, space, order, from);
      return e.element(op.getX(), from);
    };
    auto pointNumber = [&] {
      SmallVector<IndexExpr> at;
      for (int64_t axis : keptDims)
        at.push_back(from[axis]);
      return e.space.linearize(at, shapeOf(main.getY()));
    };
    auto storeElements = [&](IndexExpr position, Value condition) {
      SmallVector<Result> results;
      for (unsigned i : elements) {
        e.spread(position, space, order, from);
        results.push_back({e.element(yielded()[i], from), from, i});
      }
      store(e, outputBuffers(frame.function), results, condition);
    };
    if (alongRow) {
      Team team(e, frame.thread, block, vector, /*unroll=*/0);
      e.spread(e.variable(frame.block, points), space, keptOrder, from);
      // Elements are written when the last sum has read what it needs of them.
      auto visit = [&](ReduceOp op, IndexExpr position) {
        Value value = source(op, position);
        if (op == reductions.back())
          storeElements(position, Value());
        return value;
      };
      SmallVector<Value> sums = team.reduceRange(reductions, accumulators, begin, length, extent, visit);
      e.guarded(team.isFirst(), [&] {
        for (auto [sum, buffer] : llvm::zip_equal(sums, buffers))
          e.store(sum, buffer, {pointNumber(), sliceNumber});
      });
      frame.sharedBytes += team.sharedBytes;
      return;
    }
    Value x = arith::RemUIOp::create(b, frame.thread, e.indexConstant(across));
    Value y = arith::DivUIOp::create(b, frame.thread, e.indexConstant(across));
    Value column = arith::AddIOp::create(b, arith::MulIOp::create(b, frame.block, e.indexConstant(across)), x), used;
    if (points % (across * vector) != 0) {
      used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, column, e.indexConstant(points / vector));
      column = arith::SelectOp::create(b, used, column, e.indexConstant(0));
    }
    if (vector > 1)
      column = arith::MulIOp::create(b, column, e.indexConstant(vector));
    e.spread(e.variable(column, points, vector), space, keptOrder, from);
    // This thread's elements: begin + y, then every `down`-th before the end of the slice and of the extent.
    IndexExpr start = e.space.add(begin, e.variable(y, down));
    Value left = arith::SubIOp::create(b, e.indexConstant(extent + down - 1), e.index(start));
    Value count = arith::DivSIOp::create(b, left, e.indexConstant(down));
    count =
        arith::MinSIOp::create(b, arith::MaxSIOp::create(b, count, e.indexConstant(0)), e.indexConstant(length / down));
    if (guard) {
      SmallVector<IndexExpr> at;
      for (int64_t axis : keptDims)
        at.push_back(from[axis]);
      Value known = e.element(guard, at), all = vector > 1 ? Value() : known;
      for (unsigned i = 0; vector > 1 && i < vector; ++i) {
        Value lane = vector::ExtractOp::create(b, known, int64_t(i));
        all = all ? Value(arith::AndIOp::create(b, all, lane)) : lane;
      }
      count = arith::SelectOp::create(b, all, e.indexConstant(0), count);
    }
    SmallVector<Value> sums;
    for (const Accumulator &a : accumulators)
      sums.push_back(e.splat(a.identity(e, a.type), vector));
    MathBuilder m(e);
    sums = e.loop(e.indexConstant(0), count, length / down, 1, sums, [&](IndexExpr k, ValueRange carried) {
      SmallVector<Value> next;
      IndexExpr position = e.space.add(e.space.scale(k, down), start);
      for (auto [op, a, sum] : llvm::zip_equal(reductions, accumulators, carried)) {
        Value value = source(op, position);
        if (isa<FloatType>(a.type))
          value = m.toFloat(value, a.type);
        next.push_back(a.combine(e, sum, e.splat(value, vector)));
      }
      storeElements(position, used);
      return next;
    });
    // Columns of the block's threads, one below the other.
    SmallVector<Value> shared;
    for (auto [sum, a] : llvm::zip_equal(sums, accumulators)) {
      Value memory = sharedBuffer(e, {down, across * static_cast<int64_t>(vector)}, a.type, frame.sharedBytes);
      shared.push_back(memory);
      Value place = arith::MulIOp::create(b, x, e.indexConstant(vector));
      for (unsigned i = 0; i < vector; ++i) {
        Value part = vector > 1 ? Value(vector::ExtractOp::create(b, sum, int64_t(i))) : sum;
        if (a.type.isInteger(1))
          part = arith::ExtUIOp::create(b, b.getI8Type(), part);
        memref::StoreOp::create(b, part, memory, ValueRange{y, arith::AddIOp::create(b, place, e.indexConstant(i))});
      }
    }
    gpu::BarrierOp::create(b);
    Value writes = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, y, e.indexConstant(0));
    if (used)
      writes = arith::AndIOp::create(b, writes, used);
    e.guarded(writes, [&] {
      Value place = arith::MulIOp::create(b, x, e.indexConstant(vector));
      for (auto [memory, a, buffer] : llvm::zip_equal(shared, accumulators, buffers)) {
        auto level = [&, &memory = memory, &a = a](Value y) {
          SmallVector<Value> parts;
          for (unsigned i = 0; i < vector; ++i) {
            Value spot = arith::AddIOp::create(b, place, e.indexConstant(i));
            Value part = memref::LoadOp::create(b, memory, ValueRange{y, spot});
            parts.push_back(a.type.isInteger(1) ? Value(arith::TruncIOp::create(b, b.getI1Type(), part)) : part);
          }
          return parts;
        };
        SmallVector<Value> parts = e.loop(e.indexConstant(1), e.indexConstant(down), down, 1, level(e.indexConstant(0)),
                                          [&, &a = a](IndexExpr i, ValueRange carried) {
                                            SmallVector<Value> next = level(e.index(i));
                                            for (auto [value, sum] : llvm::zip_equal(next, carried))
                                              value = a.combine(e, sum, value);
                                            return next;
                                          });
        Value sum = vector > 1 ? Value(vector::FromElementsOp::create(b, VectorType::get(vector, a.type), parts))
                               : parts.front();
        e.store(sum, buffer, {pointNumber(), sliceNumber});
      }
    });
  });
  if (guard) {
    SmallVector<int64_t> guarded;
    for (auto [i, type] : llvm::enumerate(inputs))
      if (type.getNumElements() == points * extent)
        guarded.push_back(static_cast<int64_t>(i));
    setAttr<MPTDialect::GuardedAttrHelper>(info.launches.front().function, builder.getDenseI64ArrayAttr(guarded));
  }
  if (!row.empty()) {
    markInPlace(/*reductionsToo=*/true);
    // The second launch is one of the results' points.
    shape = SmallVector<int64_t>(shapeOf(main.getY()));
    row.clear();
    kept.clear();
    for (int64_t i = 0, rank = shape.size(); i < rank; ++i)
      kept.push_back(i);
  }
  rows(slices, "columns-sum", /*partial=*/true);
}
