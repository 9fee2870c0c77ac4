// SPDX-License-Identifier: Apache-2.0
// Loop lowering of reductions: loops over the reduced axes, with vector accumulators that a fixed tree folds.
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Emission/Reductions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

int64_t mpt::extentOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> axes) {
  int64_t extent = 1;
  for (int64_t axis : axes)
    extent *= shape[axis];
  return extent;
}

namespace {

/// The running value of `op`. FP32 sums gather in FP64: `blocked` ones sum by sum over a block, others element by
/// element where that is `cheap`. With exact sums, all but gradients' do, with their errors. A processor's largest
/// magnitudes are the largest bit patterns, NaN above all: one instruction where the maximum that looks for NaN takes
/// several. A device has that maximum, and for two 16-bit floats at a time.
Accumulator loopAccumulator(ReduceOp op, bool blocked, bool cheap, const KernelTarget &target) {
  const bool onDevice = target.keepsFloatOps;
  const bool sums = op.getKind() == ReduceKind::sum || op.getKind() == ReduceKind::mean;
  if (Accumulator a = accumulatorOf(op); target.exactSums && sums && a.type.isF32() && !statedPart(op)) {
    a.type = a.total = Float64Type::get(op.getContext());
    a.exact = true;
    return a;
  }
  if (Type narrow = narrowExtreme(op); narrow && onDevice)
    return {op.getKind(), narrow, narrow};
  if (!onDevice && op.getKind() == ReduceKind::max && op.getX().getDefiningOp<AbsOp>() && reducedExtent(op) > 0 &&
      computeType(elementOf(op.getX())).isF32()) {
    Type bits = IntegerType::get(op.getContext(), 32);
    return {ReduceKind::max, bits, bits};
  }
  bool gathers = (blocked || cheap) && !narrowExtreme(op);
  return gathers ? gatheringAccumulator(op, cheap) : accumulatorOf(op);
}

/// Reductions over the same elements that can share `op`'s loops.
SmallVector<ReduceOp> companions(ElementEmitter &e, ReduceOp op, ArrayRef<IndexExpr> at) {
  if (e.alongside && llvm::is_contained(e.alongside->group, op))
    return e.alongside->group;
  SmallVector<ReduceOp> group{op};
  for (auto other : op->getBlock()->getOps<ReduceOp>()) {
    if (other == op || shapeOf(other.getX()) != shapeOf(op.getX()) || other.getAxes() != op.getAxes() ||
        e.open.contains(other) || e.knows(other.getY(), at) ||
        (e.alongside && llvm::is_contained(e.alongside->group, other)))
      continue;
    if (llvm::none_of(group, [&](ReduceOp member) { return dependsOn(other, member) || dependsOn(member, other); }))
      group.push_back(other);
  }
  return group;
}

/// The loops of reductions over the same elements. An error in the mean of a channel is the same in all its elements,
/// so that it grows with their number in every sum over the channel that follows, where the rounding errors of single
/// elements cancel out: FP32 sums gather in FP64. Down columns, where memory limits the loop, every element does; along
/// rows the sums of blocks of about `blockLength` vectors do.
class ReductionLoops {
public:
  ReductionLoops(ElementEmitter &e, MutableArrayRef<ReduceOp> group, SmallVector<IndexExpr> from, unsigned outer,
                 bool inLanes)
      : e(e), group(group), shape(shapeOf(group.front().getX())), from(std::move(from)),
        walk(e.walk(shape, group.front().getAxes())) {
    if (e.alongside && llvm::is_contained(e.alongside->group, group.front()))
      alongside = e.alongside;
    if (alongside && !alongside->walk.empty())
      walk = alongside->walk;
    if (walk.empty())
      walk.push_back({});
    if (inLanes)
      lanes = alongside ? alongside->lanes : vectorWidth(extentOf(shape, walk.back()));
    width = std::max(outer, lanes);
    chooseBlocks();
    for (ReduceOp member : group)
      accumulators.push_back(loopAccumulator(member, block > 0, lanes == 1, e.target));
  }

  /// The reduced values, one for every member of the group.
  SmallVector<Value> run() {
    SmallVector<Value> carried;
    for (const Accumulator &a : accumulators)
      carried.push_back(a.start(e, a.total, width));
    // Lanes along the reduced axis are followed by scalars for the rest.
    if (lanes > 1)
      for (const Accumulator &a : accumulators)
        carried.push_back(a.start(e, a.total, 1));
    SmallVector<Value> results = nest(0, carried);
    const bool hasRest = extentOf(shape, walk.back()) % lanes != 0;
    for (size_t i = 0; i < group.size(); ++i) {
      if (lanes > 1)
        results[i] = accumulators[i].fold(e, results[i]);
      if (hasRest)
        results[i] = accumulators[i].combine(e, results[i], results[group.size() + i]);
      results[i] = accumulators[i].close(e, results[i]);
      if (isa<IntegerType>(accumulators[i].total) && isa<FloatType>(elementOf(group[i].getX())))
        results[i] = ofBits(results[i]);
      results[i] = finishReduction(e, group[i], results[i]);
    }
    results.resize(group.size());
    return results;
  }

private:
  static constexpr int64_t blockLength = 32;

  Value cast(Value value, Type element) {
    auto vector = dyn_cast<VectorType>(value.getType());
    return arith::BitcastOp::create(e.b, vector ? Type(vector.clone(element)) : element, value);
  }
  Value bitsOf(Value x) { return cast(x, e.b.getI32Type()); }
  Value ofBits(Value bits) { return cast(bits, e.b.getF32Type()); }
  bool isLast(size_t level) const { return level + 1 == walk.size(); }
  int64_t iterations(size_t level) const {
    return extentOf(shape, walk[level]) / (isLast(level) ? static_cast<int64_t>(lanes) : 1);
  }
  /// The innermost loops that make a block together, and how many turns of the outermost of them.
  void chooseBlocks() {
    auto gathers = [this](ReduceOp op) {
      Accumulator a = loopAccumulator(op, /*blocked=*/true, /*cheap=*/false, e.target);
      return a.total != a.type;
    };
    int64_t inside = 1, total = 1;
    for (size_t level = 0; level < walk.size(); ++level)
      total *= iterations(level);
    if (lanes == 1 || total < 2 * blockLength || llvm::none_of(group, gathers))
      return;
    blockLevel = walk.size() - 1;
    for (; blockLevel > 0 && inside * iterations(blockLevel) < blockLength; --blockLevel)
      inside *= std::max<int64_t>(iterations(blockLevel), 1);
    block = llvm::divideCeil(blockLength, inside);
  }
  SmallVector<Value> step(ValueRange values) {
    SmallVector<Value> next;
    for (size_t i = 0; i < group.size(); ++i) {
      MathBuilder m(e);
      Value x = e.element(group[i].getX(), from);
      if (isa<FloatType>(accumulators[i].type))
        x = m.toFloat(x, accumulators[i].type);
      else if (isa<FloatType>(getElementTypeOrSelf(x)))
        x = bitsOf(x);
      const Accumulator &a = accumulators[i];
      const unsigned width = e.width(values[i]);
      x = e.splat(x, a.exact ? width / 2 : width);
      next.push_back(isOnly && a.exact ? a.alone(e, x) : a.combine(e, values[i], x));
    }
    if (alongside)
      alongside->visit(from);
    return next;
  }
  SmallVector<Value> pass(size_t level, Value low, Value high, unsigned step_, ValueRange values) {
    return e.loop(low, high, extentOf(shape, walk[level]), step_, values, [&](const IndexExpr &i, ValueRange values) {
      e.spread(i, shape, walk[level], from);
      return isLast(level) ? step(values) : nest(level + 1, values);
    });
  }
  /// A sum of its own over [low, high), added to the totals.
  SmallVector<Value> partial(size_t level, Value low, Value high, unsigned step_, ValueRange totals) {
    SmallVector<Value> sums;
    for (auto [i, total] : llvm::enumerate(totals)) {
      const Accumulator &a = accumulators[i % group.size()];
      sums.push_back(a.start(e, a.type, a.exact ? e.width(total) / 2 : e.width(total)));
    }
    sums = pass(level, low, high, step_, sums);
    for (auto [i, total] : llvm::enumerate(totals)) {
      const Accumulator &a = accumulators[i % group.size()];
      MathBuilder m(e);
      sums[i] = a.combine(e, total, isa<FloatType>(a.total) ? m.toFloat(sums[i], a.total) : sums[i]);
    }
    return sums;
  }
  SmallVector<Value> range(size_t level, int64_t low, int64_t high, unsigned step_, ValueRange values) {
    Value from_ = e.indexConstant(low), to = e.indexConstant(high);
    if (block == 0 || level != blockLevel)
      return pass(level, from_, to, step_, values);
    int64_t length = block * step_, blocks = (high - low) / length;
    if (blocks <= 1)
      return partial(level, from_, to, step_, values);
    SmallVector<Value> totals = e.loop(
        e.indexConstant(0), e.indexConstant(blocks), blocks, 1, values, [&](const IndexExpr &i, ValueRange totals) {
          Value begin = e.index(e.space.add(e.space.scale(i, length), low));
          return partial(level, begin, arith::AddIOp::create(e.b, begin, e.indexConstant(length)), step_, totals);
        });
    if (int64_t middle = low + blocks * length; middle < high)
      return partial(level, e.indexConstant(middle), to, step_, totals);
    return totals;
  }
  SmallVector<Value> nest(size_t level, ValueRange values) {
    int64_t extent = extentOf(shape, walk[level]);
    if (!isLast(level) || lanes <= 1)
      return range(level, 0, extent, 1, values);
    int64_t middle = extent / lanes * lanes;
    isOnly = walk.size() == 1 && middle == lanes;
    SmallVector<Value> results = range(level, 0, middle, lanes, values.take_front(group.size()));
    isOnly = false;
    if (middle < extent)
      llvm::append_range(results, range(level, middle, extent, 1, values.drop_front(group.size())));
    else
      llvm::append_range(results, values.drop_front(group.size()));
    return results;
  }
  /// Four registers' worth of lanes, so that additions overlap; fewer for short rows. The next maximum, which looks for
  /// NaN, takes several instructions to be ready: twice as many.
  unsigned vectorWidth(int64_t extent) const {
    bool extremes = llvm::all_of(group, [](ReduceOp member) {
      return member.getKind() == ReduceKind::max || member.getKind() == ReduceKind::min;
    });
    unsigned lanes = e.target.lanes() * (extremes ? 4 : 2);
    while (lanes > extent)
      lanes /= 2;
    return lanes < 4 ? 1 : lanes;
  }
  ElementEmitter &e;
  MutableArrayRef<ReduceOp> group;
  ArrayRef<int64_t> shape;
  SmallVector<IndexExpr> from;
  SmallVector<SmallVector<int64_t>> walk;
  SmallVector<Accumulator> accumulators;
  unsigned lanes = 1, width = 1;
  bool isOnly = false; ///< the loop over lanes has one turn
  size_t blockLevel = 0;
  int64_t block = 0; ///< 0: no blocks
  const Alongside *alongside = nullptr;
};

struct ReduceModel : LoopLowering::ExternalModel<ReduceModel, ReduceOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<ReduceOp>(operation);
    SmallVector<ReduceOp> group = companions(e, op, at);
    for (ReduceOp member : group)
      e.open.insert(member);
    SmallVector<IndexExpr> from(rankOf(op.getX()));
    for (auto [position, axis] : llvm::enumerate(keptAxes(op)))
      from[axis] = at[position];
    bool inLanes = !e.probe && e.laneInReductions && !e.space.isLane(at);
    std::optional<SmallVector<Value>> results = e.strategy ? e.strategy->reduce(e, group, at) : std::nullopt;
    if (!results)
      results = ReductionLoops(e, group, std::move(from), e.laneWidth(at), inLanes).run();
    e.reduced += group.size();
    for (auto [member, value] : llvm::zip(group, *results)) {
      e.define(member.getY(), at, value);
      e.open.erase(member);
    }
    return e.element(op.getY(), at);
  }
};

struct ReduceRole : FusionRole::ExternalModel<ReduceRole, ReduceOp> {
  FusionKind getFusionKind(Operation *) const { return FusionKind::Reduction; }
};

/// Whether `x` takes the place of `best`, which comes before it.
Value isBetter(ImplicitLocOpBuilder &b, ArgReduceOp op, Value x, Value best) {
  const bool last = op.getLast();
  const unsigned choice = (op.getKind() == ReduceKind::max ? 0 : 2) + last;
  if (!isa<FloatType>(getElementTypeOrSelf(x))) {
    using P = arith::CmpIPredicate;
    constexpr P ofSigned[] = {P::sgt, P::sge, P::slt, P::sle}, ofUnsigned[] = {P::ugt, P::uge, P::ult, P::ule};
    Type element = elementOf(op.getX());
    const bool isUnsigned = element.isUnsignedInteger(64) || element.isInteger(1);
    return arith::CmpIOp::create(b, (isUnsigned ? ofUnsigned : ofSigned)[choice], x, best);
  }
  // NaN wins, as in the reduction: the first one, or the last.
  using P = arith::CmpFPredicate;
  constexpr P predicates[] = {P::OGT, P::OGE, P::OLT, P::OLE};
  Value better = arith::CmpFOp::create(b, predicates[choice], x, best);
  Value wins = arith::CmpFOp::create(b, P::UNO, x, x);
  if (!last)
    wins = arith::AndIOp::create(b, wins, arith::CmpFOp::create(b, P::ORD, best, best));
  return arith::OrIOp::create(b, better, wins);
}

struct ArgReduceModel : LoopLowering::ExternalModel<ArgReduceModel, ArgReduceOp> {
  bool isCheap(Operation *) const { return false; }
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<ArgReduceOp>(operation);
    int64_t axis = op.getAxis(), extent = tensorType(op.getX()).getDimSize(axis);
    ImplicitLocOpBuilder &b = e.b;
    SmallVector<IndexExpr> from(at.take_front(axis));
    from.push_back(0);
    llvm::append_range(from, at.drop_front(axis));
    unsigned lanes = e.laneWidth(at);
    Value first = e.splat(e.element(op.getX(), from), lanes);
    Value start = e.splat(e.constant(b.getI64Type(), 0), lanes);
    return e.loop(e.indexConstant(0), e.indexConstant(extent), extent, 1, {first, start},
                  [&](const IndexExpr &i, ValueRange best) {
                    from[axis] = i;
                    Value x = e.splat(e.element(op.getX(), from), lanes), better = isBetter(b, op, x, best[0]);
                    Value position = e.splat(e.indexAs(i, b.getI64Type()), lanes);
                    return SmallVector<Value>{arith::SelectOp::create(b, better, x, best[0]),
                                              arith::SelectOp::create(b, better, position, best[1])};
                  })[1];
  }
};

/// Each element needs all before it, so that a kernel that walks them all makes the whole result.
struct CumSumModel : LoopLowering::ExternalModel<CumSumModel, CumSumOp> {
  bool standsAlone(Operation *) const { return true; }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr>) const {
    return e.fail(op, "expected a fusion of this op alone, got one that uses its result",
                  getElementTypeOrSelf(op->getResult(0)));
  }
};

} // namespace

void mpt::attachReduceModels(MLIRContext *context) {
  ReduceOp::attachInterface<ReduceModel, ReduceRole>(*context);
  ArgReduceOp::attachInterface<ArgReduceModel>(*context);
  CumSumOp::attachInterface<CumSumModel>(*context);
}
