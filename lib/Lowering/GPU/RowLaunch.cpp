// SPDX-License-Identifier: Apache-2.0
// The size of teams, the values that they keep in registers, and a row's sums and elements.
#include "RowLaunch.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Sums that an earlier launch left in pieces: buffer number i, [point][slice], holds the i-th reduction's.
class PartialSums : public ReductionStrategy {
public:
  PartialSums(Team &team, ArrayRef<ReduceOp> reductions, ArrayRef<Value> buffers, int64_t slices)
      : team(team), reductions(reductions), buffers(buffers), slices(slices) {}

  std::optional<SmallVector<Value>> reduce(ElementEmitter &e, MutableArrayRef<ReduceOp> group,
                                           ArrayRef<IndexExpr> at) override {
    SmallVector<Accumulator> accumulators;
    for (ReduceOp op : group)
      accumulators.push_back(gatheringAccumulator(op, /*everyElement=*/true));
    SmallVector<Value> results = team.reduceAll(group, accumulators, slices, [&](ReduceOp op, const IndexExpr &slice) {
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

/// `p` and `q`, either of which may be null for "always".
Value both(ElementEmitter &e, Value p, Value q) { return p && q ? Value(arith::AndIOp::create(e.b, p, q)) : p ? p : q; }

} // namespace

int64_t PartialBuffers::offsetOf(unsigned number) const {
  int64_t offset = 0;
  for (ReduceOp op : reductions.take_front(number)) {
    Type type = gatheringAccumulator(op, /*everyElement=*/true).type;
    offset += llvm::alignTo(countOf(op.getY()) * slices * bytesOf(type), 16);
  }
  return offset;
}

Value PartialBuffers::buffer(GpuKernelBuilder::Frame &frame, unsigned number) const {
  ReduceOp op = reductions[number];
  Type element = gatheringAccumulator(op, /*everyElement=*/true).type;
  auto type = MemRefType::get({countOf(op.getY()), slices}, element);
  ImplicitLocOpBuilder &b = frame.e.b;
  return memref::ViewOp::create(b, type, frame.function.getArguments().back(), frame.e.indexConstant(offsetOf(number)),
                                ValueRange());
}

SmallVector<Value> PartialBuffers::all(GpuKernelBuilder::Frame &frame) const {
  SmallVector<Value> buffers;
  for (unsigned i = 0; i < reductions.size(); ++i)
    buffers.push_back(buffer(frame, i));
  return buffers;
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

void RowLaunch::chooseVectors() {
  ArrayRef<ReduceOp> reductions = kernel.reductions;
  int64_t innermost = kernel.laneInRow && !kernel.row.empty() ? kernel.extentOf(kernel.lane) : 1;
  if (kernel.row.empty() && !partial) {
    // The rows belong to the reductions' operands, which reshapes and gathers may scatter: their own strides tell.
    ReduceOp first = reductions.front();
    ArrayRef<int64_t> space = shapeOf(first.getX());
    int64_t axis = kernel.fastestAxis(space);
    if (axis >= 0 && kernel.stridesOf(space)[axis] == 1 && llvm::is_contained(first.getAxes(), axis))
      innermost = space[axis];
  }
  points = kernel.extentOf(kernel.kept);
  SmallVector<int64_t> sizes;
  for (MemRefType type : kernel.inputs)
    // An input with one number a row may have more numbers than a row has elements.
    if (type.getNumElements() >= extent && (type.getNumElements() != points || points == extent)) {
      sizes.push_back(bytesOf(type.getElementType()));
      ++streams;
      shared += type.getNumElements() == extent && points > 1;
    }
  vector = partial ? 1 : kernel.vectorWidth(innermost, sizes);
  // The plan of memory begins each row where vectors may, so that only a row's last elements are visited one by one.
  unsigned widest = kernel.vectorWidth(/*extent=*/0, sizes);
  if (!partial && innermost == extent && extent >= 512 && vector < widest && kernel.rowsBeginAligned(extent, widest)) {
    ragged = extent;
    vector = widest;
  }
  // Many sums beside each other: each has its own values, so that more registers a thread are wanted than 512 threads
  // leave.
  many = reductions.size() > 4;
  mostThreads = many ? kernel.device.rowThreads : 2 * kernel.device.rowThreads;
  if (many)
    vector = std::min(vector, 4u);
  if (vector == 1)
    ragged = 0;
  pieces = ceilDiv(extent, vector);
}

void RowLaunch::chooseKept() {
  // An input that all rows share, such as a norm's scale, is in a cache: it is read where it is used, and not kept.
  unroll = std::clamp<int64_t>(96 / (streams - shared), 8, 32);
  // One operand that only sums read: half of a thread's registers hold the row.
  if (streams == 2 &&
      llvm::all_of(kernel.yielded(), [&](Value output) { return kernel.isRowLevel(output) || kernel.row.empty(); }))
    unroll = 64;
  // A longer row that the sums read once, of which nothing else has to be kept: as many as the registers of the largest
  // team hold, since it would be read again for every sum and every output.
  constexpr int64_t mostKept = 104;
  keepsLongRow = streams == 2 && kernel.reductions.size() <= 3 && chainLength(kernel.body()) <= 2 &&
                 heldBy(mostThreads) > unroll && heldBy(mostThreads) <= mostKept;
  if (keepsLongRow)
    unroll = mostKept;
  // Of 16 bits, a register holds two: blocks of half the threads, two of which share a multiprocessor, so that one
  // computes while the other one waits for its row.
  constexpr int64_t mostPacked = 208, fewKept = 32;
  int64_t half = kernel.device.rowThreads;
  if (heldBy(mostThreads) <= fewKept || heldBy(half) > mostPacked)
    return;
  packed = packedStream();
  if (!packed)
    return;
  keepsLongRow = false;
  mostThreads = half;
  unroll = mostPacked;
}

/// The one long operand, where it is of 16 bits and all sums go along its rows; else null.
Value RowLaunch::packedStream() const {
  ArrayRef<ReduceOp> reductions = kernel.reductions;
  if (partial || streams != 2 || reductions.size() > 3 || chainLength(kernel.body()) > 2)
    return {};
  ReduceOp first = reductions.front();
  ArrayRef<int64_t> space = shapeOf(first.getX());
  for (ReduceOp op : reductions)
    if (shapeOf(op.getX()) != space || op.getAxes() != first.getAxes())
      return {};
  // Elements that a thread makes of its row beside sums would not fit beside it.
  if (!kernel.row.empty() || shapeOf(first.getY()) != ArrayRef<int64_t>(kernel.shape))
    return {};
  for (auto [argument, type] : llvm::zip_equal(kernel.body().getArguments(), kernel.inputs))
    if (type.getShape() == space && isa<FloatType>(type.getElementType()) && type.getElementTypeBitWidth() == 16)
      return argument;
  return {};
}

void RowLaunch::chooseTeams() {
  // Several sums over rows that no team keeps want registers as well.
  if (kernel.reductions.size() > 3 && extent > mostThreads * unroll)
    mostThreads = kernel.device.rowThreads;
  const int64_t warp = kernel.device.warpThreads;
  while (threads < warp && threads < pieces)
    threads *= 2;
  while (threads >= warp && threads < mostThreads && heldBy(threads) > unroll)
    threads *= 2;
  // Few rows: more threads each. Of slices' sums, a warp has fewer of its own than its threads exchange.
  int64_t multiprocessors = kernel.device.multiprocessors, busy = (partial ? 128 : 512) * multiprocessors;
  while (threads >= warp && threads < mostThreads && pieces >= 2 * threads && points * threads < busy)
    threads *= 2;
  // Loops keep one sum's values from waiting for another's.
  if (many)
    unroll = 0;
  // A team of several warps has the block's shared memory for itself.
  together = threads > warp ? 1 : (points >= 4 * multiprocessors ? 4 : 1) * warp / threads;
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

RowLaunch::Place RowLaunch::placeOf(Frame &frame) const {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Place place{frame.thread, frame.block, Value()};
  if (together == 1)
    return place;
  place.member = arith::RemUIOp::create(b, frame.thread, e.indexConstant(threads));
  Value first = arith::MulIOp::create(b, frame.block, e.indexConstant(together));
  place.number = arith::AddIOp::create(b, first, arith::DivUIOp::create(b, frame.thread, e.indexConstant(threads)));
  if (points % together != 0) {
    // Teams without a row repeat their block's first one, and write nothing: whole warps take part in every exchange.
    // In place, another block may write any other row meanwhile.
    place.used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, place.number, e.indexConstant(points));
    place.number = arith::SelectOp::create(b, place.used, place.number, first);
  }
  return place;
}

/// The elements of a row that `team` holds after its sums, written one by one. `writer` is the same team by other
/// numbers, so that only the row itself lives on from the sums' computations: comparisons with a position, for one,
/// would take a register an element.
void RowLaunch::storeKeptRow(Frame &frame, Team &team, ArrayRef<int64_t> order, SmallVector<IndexExpr> at, Value used,
                             Team writer) {
  ElementEmitter &e = frame.e;
  ArrayRef<int64_t> shape = kernel.shape;
  int64_t length = kernel.extentOf(kernel.row);
  SmallVector<Value> kept;
  for (auto [argument, type] : llvm::zip_equal(kernel.body().getArguments(), kernel.inputs))
    if (type.getShape() == shape)
      kept.push_back(argument);
  SmallVector<IndexExpr> positions;
  team.forEach(length, [&](const IndexExpr &position, Value) { positions.push_back(position); });
  auto known = positions.begin();
  writer.forEach(length, [&](const IndexExpr &position, Value inside) {
    SmallVector<Value> values;
    e.spread(*known++, shape, order, at);
    for (Value stream : kept)
      values.push_back(e.element(stream, at));
    e.spread(position, shape, order, at);
    for (auto [stream, value] : llvm::zip_equal(kept, values))
      e.define(stream, at, value);
    if (used)
      inside = inside ? Value(arith::AndIOp::create(e.b, used, inside)) : used;
    kernel.store(e, kernel.outputBuffers(frame.function), kernel.outputsAt(e, at, /*rowLevel=*/false), inside);
  });
}

/// Names the packed elements that `before` holds by the positions of `after`, in a way that no compiler sees through:
/// later code starts from the elements, two a register, and not from values computed from them.
void RowLaunch::holdAgain(ElementEmitter &e, Team &before, Team &after, MutableArrayRef<IndexExpr> at) {
  ImplicitLocOpBuilder &b = e.b;
  ReduceOp first = kernel.reductions.front();
  ArrayRef<int64_t> space = shapeOf(first.getX());
  SmallVector<int64_t> order = walkOrder(e, space, first.getAxes());
  Type i16 = b.getIntegerType(16), type = cast<MemRefType>(e.buffers.lookup(packed).getType()).getElementType();
  auto number = [&](Team &team) { return arith::IndexCastOp::create(b, b.getI32Type(), team.number()); };
  Value zero = arith::XOrIOp::create(b, number(before), number(after));
  SmallVector<Value> held;
  before.forEach(extent, [&](const IndexExpr &position, Value) {
    e.spread(position, space, order, at);
    held.push_back(e.narrow(e.element(packed, at), type));
  });
  // Widened where they are used: all of them at a time would not fit.
  after.beforeVisit = [this, &e, space, order, held, zero, i16, type, from = SmallVector<IndexExpr>(at),
                       visits = size_t(0)](const IndexExpr &position) mutable {
    ImplicitLocOpBuilder &b = e.b;
    e.spread(position, space, order, from);
    Value value = held[visits++ % held.size()], bits;
    if (e.knows(packed, from))
      return;
    if (int64_t lanes = e.width(value); lanes > 1) {
      auto words = VectorType::get(lanes / 2, b.getI32Type());
      bits = arith::XOrIOp::create(b, mlir::vector::BitCastOp::create(b, words, value), e.splat(zero, lanes / 2));
      bits = mlir::vector::BitCastOp::create(b, cast<VectorType>(value.getType()), bits);
    } else {
      bits = arith::XOrIOp::create(b, arith::BitcastOp::create(b, i16, value), arith::TruncIOp::create(b, i16, zero));
      bits = arith::BitcastOp::create(b, type, bits);
    }
    e.define(packed, from, e.widen(bits));
  };
}

/// The sums of a packed row, each from the elements as they lie in memory.
void RowLaunch::emitPackedSums(Frame &frame, const Place &place, ArrayRef<IndexExpr> at) {
  ElementEmitter &e = frame.e;
  ReduceOp first = kernel.reductions.front();
  SmallVector<IndexExpr> from(shapeOf(first.getX()).size());
  for (auto [position, axis] : llvm::enumerate(keptAxes(first)))
    from[axis] = at[position];
  for (ReduceOp op : kernel.reductions) {
    if (e.knows(op.getY(), at))
      continue;
    Value member = teams.empty() ? place.member : teams.back()->opaqueMember();
    teams.push_back(std::make_unique<Team>(e, member, threads, vector, unroll, ragged));
    if (teams.size() > 1)
      holdAgain(e, *teams[teams.size() - 2], *teams.back(), from);
    e.strategy = teams.back().get();
    (void)e.element(op.getY(), at);
  }
}

bool RowLaunch::holdsRow(const Team &team) const {
  return keepsLongRow && !kernel.row.empty() && team.isUnrolled(kernel.extentOf(kernel.row));
}

/// A row's sums, then its elements.
void RowLaunch::emitElements(Frame &frame, Team &team, SmallVector<IndexExpr> at, const Place &place) {
  ElementEmitter &e = frame.e;
  ValueRange buffers = kernel.outputBuffers(frame.function);
  int64_t length = kernel.extentOf(kernel.row);
  auto storeRowLevel = [&](ArrayRef<KernelNest::Result> ofRow) {
    if (!ofRow.empty())
      kernel.store(e, buffers, ofRow, both(e, place.used, team.isFirst()));
  };
  // All sums come before the first write: an output may lie in the memory of an input.
  SmallVector<KernelNest::Result> ofRow = kernel.outputsAt(e, at, /*rowLevel=*/true);
  for (ReduceOp op : kernel.reductions) {
    if (shapeOf(op.getX()) != ArrayRef<int64_t>(kernel.shape) || op.getAxes() != ArrayRef<int64_t>(kernel.row))
      continue;
    SmallVector<IndexExpr> point;
    for (int64_t axis : kernel.kept)
      point.push_back(at[axis]);
    (void)e.element(op.getY(), point);
  }
  SmallVector<int64_t> order = walkOrder(e, kernel.shape, kernel.row);
  if (holdsRow(team)) {
    storeKeptRow(frame, team, order, at, place.used, Team(e, team.opaqueMember(), threads, vector, unroll, ragged));
    return storeRowLevel(ofRow);
  }
  // Where the row is in registers, all its reads come before its writes, which could otherwise not overlap.
  bool gather = team.isUnrolled(length);
  SmallVector<std::pair<SmallVector<KernelNest::Result>, Value>> waiting;
  team.forEach(length, [&](const IndexExpr &position, Value inside) {
    e.spread(position, kernel.shape, order, at);
    SmallVector<KernelNest::Result> results = kernel.outputsAt(e, at, /*rowLevel=*/false);
    if (gather)
      waiting.push_back({std::move(results), both(e, place.used, inside)});
    else
      kernel.store(e, buffers, results, both(e, place.used, inside));
  });
  for (auto &[results, condition] : waiting)
    kernel.store(e, buffers, results, condition);
  storeRowLevel(ofRow);
}

void RowLaunch::emitTeam(Frame &frame) {
  ElementEmitter &e = frame.e;
  Place place = placeOf(frame);
  Team team(e, place.member, threads, vector, unroll, ragged);
  team.scalarTotals = keepsLongRow;
  SmallVector<Value> pieceBuffers;
  if (partial)
    pieceBuffers = partial->all(frame);
  PartialSums sums(team, kernel.reductions, pieceBuffers, partial ? partial->slices : 1);
  e.strategy = partial ? static_cast<ReductionStrategy *>(&sums) : &team;
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(e.variable(place.number, points), kernel.shape, kernel.outerAxes(e), at);
  if (packed)
    emitPackedSums(frame, place, at);
  if (kernel.row.empty())
    kernel.storeOutputs(e, kernel.outputBuffers(frame.function), at, /*rowLevel=*/false,
                        both(e, place.used, team.isFirst()));
  else
    emitElements(frame, team, at, place);
  frame.sharedBytes += team.sharedBytes;
  for (const std::unique_ptr<Team> &other : teams)
    frame.sharedBytes += other->sharedBytes;
  if (!partial && !holdsRow(team) && !team.isUnrolled(extent))
    passes = chainLength(kernel.body()) + !kernel.row.empty();
}

void RowLaunch::emit(StringRef schedule) {
  chooseVectors();
  chooseKept();
  chooseTeams();
  kernel.lane.clear();
  kernel.laneInRow = false;
  kernel.launch(schedule, {ceilDiv(points, together), 1, 1}, threads * together,
                [&](Frame &frame) { emitTeam(frame); });
  if (passes > 1)
    setAttr<MPTDialect::PassesAttrHelper>(kernel.info.launches.back().function,
                                          kernel.builder.getI64IntegerAttr(passes));
  if (!partial)
    kernel.markInPlace(/*reductionsToo=*/!kernel.row.empty());
}
