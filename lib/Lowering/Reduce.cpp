// Element forms of reductions: loops over the reduced axes, with vector accumulators that a fixed tree folds.
#include "LoweringModels.h"
#include "MathFunctions.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// One running value: its start and its step.
struct Accumulator {
  ReduceKind kind;
  Type type;

  Value identity(ElementEmitter &e) const {
    if (auto real = dyn_cast<FloatType>(type)) {
      double values[] = {0, 0, -INFINITY, INFINITY, 1};
      return e.constant(real, values[static_cast<unsigned>(kind)]);
    }
    unsigned bits = type.getIntOrFloatBitWidth();
    APInt values[] = {APInt(bits, 0), APInt(bits, 0), bits == 1 ? APInt(1, 0) : APInt::getSignedMinValue(bits),
                      bits == 1 ? APInt(1, 1) : APInt::getSignedMaxValue(bits), APInt(bits, 1)};
    return arith::ConstantOp::create(e.b, e.b.getIntegerAttr(type, values[static_cast<unsigned>(kind)]));
  }
  Value combine(ElementEmitter &e, Value x, Value y) const {
    ImplicitLocOpBuilder &b = e.b;
    bool real = isa<FloatType>(type), flag = type.isInteger(1);
    switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::mean:
      return real ? Value(arith::AddFOp::create(b, x, y)) : Value(arith::AddIOp::create(b, x, y));
    case ReduceKind::prod:
      return real ? Value(arith::MulFOp::create(b, x, y)) : Value(arith::MulIOp::create(b, x, y));
    case ReduceKind::max:
      return real   ? Value(arith::MaximumFOp::create(b, x, y))
             : flag ? Value(arith::OrIOp::create(b, x, y))
                    : Value(arith::MaxSIOp::create(b, x, y));
    case ReduceKind::min:
      return real   ? Value(arith::MinimumFOp::create(b, x, y))
             : flag ? Value(arith::AndIOp::create(b, x, y))
                    : Value(arith::MinSIOp::create(b, x, y));
    }
    llvm_unreachable("unknown reduction");
  }
  /// Halves folded onto each other until one lane is left.
  Value fold(ElementEmitter &e, Value x) const {
    for (int64_t lanes = e.width(x) / 2; lanes >= 1; lanes /= 2) {
      Value low = vector::ExtractStridedSliceOp::create(e.b, x, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{lanes},
                                                        ArrayRef<int64_t>{1});
      Value high = vector::ExtractStridedSliceOp::create(e.b, x, ArrayRef<int64_t>{lanes}, ArrayRef<int64_t>{lanes},
                                                         ArrayRef<int64_t>{1});
      x = combine(e, low, high);
    }
    return vector::ExtractOp::create(e.b, x, int64_t{0});
  }
};

/// The type that sums of `op` run in.
Type accumulatorType(ReduceOp op) {
  Type type = computeType(typeOf(op.getX()).getElementType());
  if (NumericsAttr numerics = op.getNumericsAttr())
    if (auto wide = dyn_cast<FloatType>(numerics.getAcc()); wide && isa<FloatType>(type))
      return wide.getWidth() > type.getIntOrFloatBitWidth() ? wide : type;
  return type;
}

bool dependsOn(Operation *user, Operation *source) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  (void)getBackwardSlice(user, &slice, options);
  return slice.contains(source);
}

/// Reductions over the same elements that can share `op`'s loops.
SmallVector<ReduceOp> companions(ElementEmitter &e, ReduceOp op, ArrayRef<IndexExpr> at) {
  SmallVector<ReduceOp> group{op};
  for (auto other : op->getBlock()->getOps<ReduceOp>()) {
    if (other == op || typeOf(other.getX()).getShape() != typeOf(op.getX()).getShape() ||
        other.getAxes() != op.getAxes() || e.open.contains(other) || e.knows(other.getY(), at))
      continue;
    if (llvm::none_of(group, [&](ReduceOp member) { return dependsOn(other, member) || dependsOn(member, other); }))
      group.push_back(other);
  }
  return group;
}

struct ReduceModel : LoopLowering::ExternalModel<ReduceModel, ReduceOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<ReduceOp>(operation);
    ArrayRef<int64_t> shape = typeOf(op.getX()).getShape();
    SmallVector<ReduceOp> group = companions(e, op, at);
    for (ReduceOp member : group)
      e.open.insert(member);
    SmallVector<Accumulator> accumulators;
    for (ReduceOp member : group)
      accumulators.push_back({member.getKind(), accumulatorType(member)});

    SmallVector<IndexExpr> from(shape.size());
    for (auto [position, axis] : llvm::enumerate(keptAxes(op)))
      from[axis] = at[position];
    SmallVector<SmallVector<int64_t>> walk = e.walk(shape, op.getAxes());
    if (walk.empty())
      walk.push_back({});
    unsigned lanes = 1;
    if (!e.probe && e.laneInReductions && !e.space.isLane(at))
      lanes = vectorWidth(e, extentOf(shape, walk.back()));

    size_t count = group.size();
    SmallVector<Value> start;
    for (const Accumulator &a : accumulators)
      start.push_back(a.identity(e));
    // Lanes of the result, or lanes along the reduced axis; the latter are followed by scalars for the rest.
    unsigned outer = e.laneWidth(at);
    SmallVector<Value> carried;
    for (Value value : start)
      carried.push_back(e.splat(value, std::max(outer, lanes)));
    if (lanes > 1)
      llvm::append_range(carried, start);

    auto step = [&](ArrayRef<IndexExpr> point, ValueRange values) {
      SmallVector<Value> next;
      for (size_t i = 0; i < count; ++i) {
        MathBuilder m(e);
        Value x = e.element(group[i].getX(), point);
        if (isa<FloatType>(accumulators[i].type))
          x = m.toFloat(x, accumulators[i].type);
        next.push_back(accumulators[i].combine(e, values[i], e.splat(x, e.width(values[i]))));
      }
      return next;
    };
    std::function<SmallVector<Value>(size_t, ValueRange)> nest = [&](size_t level, ValueRange values) {
      int64_t extent = extentOf(shape, walk[level]);
      Value zero = e.indexConstant(0), high = e.indexConstant(extent);
      bool last = level + 1 == walk.size();
      auto run = [&](Value from_, Value to, unsigned width, ValueRange values) {
        return e.loop(from_, to, extent, width, values, [&](IndexExpr i, ValueRange values) {
          e.spread(i, shape, walk[level], from);
          return last ? step(from, values) : nest(level + 1, values);
        });
      };
      if (int64_t block = last && lanes <= 1 ? blockOf(extent) : 0) {
        // Long sums in two levels: the rounding error grows with the block and the number of blocks, not their product.
        return e.loop(zero, e.indexConstant(extent / block), extent / block, 1, values,
                      [&](IndexExpr i, ValueRange totals) {
                        SmallVector<Value> fresh;
                        for (size_t k = 0; k < count; ++k)
                          fresh.push_back(e.splat(start[k], std::max(outer, 1u)));
                        SmallVector<Value> sums =
                            e.loop(zero, e.indexConstant(block), block, 1, fresh, [&](IndexExpr j, ValueRange partial) {
                              e.spread(e.space.add(e.space.scale(i, block), j), shape, walk[level], from);
                              return step(from, partial);
                            });
                        SmallVector<Value> next;
                        for (size_t k = 0; k < count; ++k)
                          next.push_back(accumulators[k].combine(e, totals[k], sums[k]));
                        return next;
                      });
      }
      if (!last || lanes <= 1)
        return run(zero, high, 1, values);
      Value middle = e.indexConstant(extent / lanes * lanes);
      SmallVector<Value> result = run(zero, middle, lanes, values.take_front(count));
      if (extent % lanes)
        llvm::append_range(result, run(middle, high, 1, values.drop_front(count)));
      else
        llvm::append_range(result, values.drop_front(count));
      return result;
    };
    SmallVector<Value> results = nest(0, carried);
    for (size_t i = 0; i < count; ++i) {
      Value value = results[i];
      if (lanes > 1) {
        value = accumulators[i].fold(e, value);
        value = accumulators[i].combine(e, value, results[count + i]);
      }
      e.define(group[i].getY(), at, finish(e, group[i], value, shape));
    }
    for (ReduceOp member : group)
      e.open.erase(member);
    return e.element(op.getY(), at);
  }

  /// A divisor of `extent` near its square root, for long loops; else 0.
  static int64_t blockOf(int64_t extent) {
    if (extent < 256)
      return 0;
    for (int64_t block = static_cast<int64_t>(std::sqrt(static_cast<double>(extent))) * 2; block >= 16; --block)
      if (extent % block == 0)
        return block;
    return 0;
  }
  static SmallVector<int64_t> keptAxes(ReduceOp op) {
    SmallVector<int64_t> kept;
    for (int64_t i = 0, rank = typeOf(op.getX()).getRank(); i < rank; ++i)
      if (!llvm::is_contained(op.getAxes(), i))
        kept.push_back(i);
    return kept;
  }
  static int64_t extentOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> group) {
    int64_t extent = 1;
    for (int64_t axis : group)
      extent *= shape[axis];
    return extent;
  }
  /// Four registers' worth of lanes, so that additions overlap; fewer for short rows.
  static unsigned vectorWidth(ElementEmitter &e, int64_t extent) {
    unsigned lanes = e.target.lanes() * 2;
    while (lanes > extent)
      lanes /= 2;
    return lanes < 4 ? 1 : lanes;
  }
  static Value finish(ElementEmitter &e, ReduceOp op, Value value, ArrayRef<int64_t> shape) {
    MathBuilder m(e);
    if (op.getKind() == ReduceKind::mean) {
      int64_t extent = extentOf(shape, op.getAxes());
      if (isa<FloatType>(getElementTypeOrSelf(value)))
        value = m.div(value, m.c(value, static_cast<double>(extent)));
      else
        value = arith::DivSIOp::create(e.b, value, e.constantLike(value, APInt(64, extent)));
    }
    Type type = typeOf(op.getY()).getElementType();
    if (isa<FloatType>(type))
      value = e.round(m.toFloat(value, computeType(type)), type);
    return value;
  }
};

struct ArgReduceModel : LoopLowering::ExternalModel<ArgReduceModel, ArgReduceOp> {
  bool isCheap(Operation *) const { return false; }
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<ArgReduceOp>(operation);
    int64_t axis = op.getAxis(), extent = typeOf(op.getX()).getDimSize(axis);
    ImplicitLocOpBuilder &b = e.b;
    SmallVector<IndexExpr> from(at.take_front(axis));
    from.push_back(0);
    llvm::append_range(from, at.drop_front(axis));
    unsigned lanes = e.laneWidth(at);
    Value first = e.splat(e.element(op.getX(), from), lanes);
    Value start = e.splat(e.constant(b.getI64Type(), 0), lanes);
    bool real = isa<FloatType>(getElementTypeOrSelf(first)), max = op.getKind() == ReduceKind::max, last = op.getLast();
    return e.loop(
        e.indexConstant(0), e.indexConstant(extent), extent, 1, {first, start}, [&](IndexExpr i, ValueRange best) {
          from[axis] = i;
          Value x = e.splat(e.element(op.getX(), from), lanes), better;
          if (real) {
            using P = arith::CmpFPredicate;
            better = arith::CmpFOp::create(b, max ? (last ? P::OGE : P::OGT) : (last ? P::OLE : P::OLT), x, best[0]);
          } else {
            using P = arith::CmpIPredicate;
            better = arith::CmpIOp::create(b, max ? (last ? P::sge : P::sgt) : (last ? P::sle : P::slt), x, best[0]);
          }
          Value position = e.splat(e.indexAs(i, b.getI64Type()), lanes);
          return SmallVector<Value>{arith::SelectOp::create(b, better, x, best[0]),
                                    arith::SelectOp::create(b, better, position, best[1])};
        })[1];
  }
};

/// Sums from the start to each element: quadratic in the axis, which is short wherever cum_sum is used.
struct CumSumModel : LoopLowering::ExternalModel<CumSumModel, CumSumOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<CumSumOp>(operation);
    int64_t axis = op.getAxis(), extent = typeOf(op.getX()).getDimSize(axis);
    Type element = typeOf(op.getX()).getElementType();
    ImplicitLocOpBuilder &b = e.b;
    unsigned lanes = e.laneWidth(at);
    Accumulator sum{ReduceKind::sum, computeType(element)};
    SmallVector<IndexExpr> from(at);
    Value here = e.splat(e.indexAs(at[axis], b.getIndexType()), lanes);
    bool reverse = op.getReverse(), exclusive = op.getExclusive();
    Value low = e.indexConstant(0), high = e.indexConstant(extent);
    Value total = e.loop(low, high, extent, 1, {e.splat(sum.identity(e), lanes)}, [&](IndexExpr i, ValueRange carried) {
      using P = arith::CmpIPredicate;
      from[axis] = i;
      Value x = e.splat(e.element(op.getX(), from), lanes);
      Value j = e.splat(e.indexAs(i, b.getIndexType()), lanes);
      P predicate = reverse ? (exclusive ? P::ugt : P::uge) : (exclusive ? P::ult : P::ule);
      Value used = arith::CmpIOp::create(b, predicate, j, here);
      Value next = sum.combine(e, carried[0], x);
      return SmallVector<Value>{arith::SelectOp::create(b, used, next, carried[0])};
    })[0];
    return e.round(total, element);
  }
};

} // namespace

void mpt::attachReduceModels(MLIRContext *context) {
  ReduceOp::attachInterface<ReduceModel>(*context);
  ArgReduceOp::attachInterface<ArgReduceModel>(*context);
  CumSumOp::attachInterface<CumSumModel>(*context);
}
