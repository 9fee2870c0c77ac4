// SPDX-License-Identifier: Apache-2.0
// Loop forms of pooling. Gradients gather: each input element asks which outputs used it.
#include "Boxes.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Emission/Reductions.h"
#include "mpt/Lowering/Models/Models.h"

using namespace mlir;
using namespace mpt;

namespace {

/// All of several flags; null flags always hold.
Value both(ElementEmitter &e, Value p, Value q) {
  if (!p || !q)
    return p ? p : q;
  Value flags[] = {p, q};
  e.unify(flags);
  return arith::AndIOp::create(e.b, flags[0], flags[1]);
}
Value pick(ElementEmitter &e, Value condition, Value x, Value y) {
  if (!condition)
    return x;
  Value all[] = {condition, x, y};
  e.unify(all);
  return arith::SelectOp::create(e.b, all[0], all[1], all[2]);
}

/// `expr` or the nearest number in [0, extent).
IndexExpr nearest(ElementEmitter &e, const IndexExpr &expr, int64_t extent) {
  if (e.space.minimum(expr) >= 0 && e.space.maximum(expr) < extent)
    return expr;
  unsigned depth = e.space.depth(expr);
  return e.at(depth, [&] {
    Value value = e.indexAs(expr, e.b.getIndexType());
    auto number = [&](int64_t n) { return e.constantLike(value, APInt(64, n)); };
    value = arith::MaxSIOp::create(e.b, value, number(0));
    value = arith::MinSIOp::create(e.b, value, number(extent - 1));
    return e.opaque(value, extent, depth);
  });
}

template <typename Op> struct Window {
  explicit Window(Op op)
      : kernel(op.getKernel()), strides(op.getStrides()), dilations(op.getDilations()), pads(op.getPadsLow()) {}
  /// Input position of tap `k` of output `o` in dimension d; `inside` becomes false in the padding.
  IndexExpr input(ElementEmitter &e, size_t d, const IndexExpr &o, const IndexExpr &k, int64_t extent,
                  Value &inside) const {
    IndexExpr position = e.space.add(e.space.scale(o, strides[d]), e.space.scale(k, dilations[d]));
    return e.clamp(e.space.add(position, IndexExpr(-pads[d])), extent, inside);
  }
  /// As input, or the nearest position of the plane.
  IndexExpr nearestInput(ElementEmitter &e, size_t d, const IndexExpr &o, const IndexExpr &k, int64_t extent) const {
    IndexExpr position = e.space.add(e.space.scale(o, strides[d]), e.space.scale(k, dilations[d]));
    return nearest(e, e.space.add(position, IndexExpr(-pads[d])), extent);
  }
  /// Input position of the first tap of output `o` that is inside. Every window has one.
  IndexExpr firstInput(ElementEmitter &e, size_t d, const IndexExpr &o, int64_t extent) const {
    IndexExpr start = e.space.add(e.space.scale(o, strides[d]), IndexExpr(-pads[d]));
    if (dilations[d] == 1 || e.space.minimum(start) >= 0)
      return nearest(e, start, extent);
    // Before the plane: the next multiple of the dilation behind its edge.
    int64_t steps = (pads[d] + dilations[d] - 1) / dilations[d];
    IndexExpr behind = e.space.divide(e.space.add(start, IndexExpr(steps * dilations[d])), dilations[d]).second;
    unsigned depth = e.space.depth(start);
    return e.at(depth, [&] {
      Value at = e.indexAs(start, e.b.getIndexType()), all[] = {at, e.indexAs(behind, e.b.getIndexType())};
      e.unify(all);
      Value outside =
          arith::CmpIOp::create(e.b, arith::CmpIPredicate::slt, all[0], e.constantLike(all[0], APInt(64, 0)));
      return e.opaque(arith::SelectOp::create(e.b, outside, all[1], all[0]), extent, depth);
    });
  }
  /// Whether all windows of `outputs` reach into the plane and have no holes: a tap in the padding may then stand for
  /// the window's nearest element, which the window has anyway.
  bool hasNearest(size_t d, int64_t extent, int64_t outputs) const {
    return dilations[d] == 1 && pads[d] < kernel[d] && (outputs - 1) * strides[d] - pads[d] < extent;
  }
  int64_t span(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
  /// How many outputs can use one input.
  SmallVector<int64_t> users() const {
    SmallVector<int64_t> result;
    for (size_t d = 0; d < kernel.size(); ++d)
      result.push_back((span(d) + strides[d] - 1) / strides[d]);
    return result;
  }
  /// Output that is the t-th from the last one whose window may hold input `i`.
  IndexExpr output(ElementEmitter &e, size_t d, const IndexExpr &i, const IndexExpr &t, int64_t extent,
                   Value &inside) const {
    IndexExpr last = e.space.divide(e.space.add(i, IndexExpr(pads[d])), strides[d]).first;
    return e.clamp(e.space.add(last, e.space.scale(t, -1)), extent, inside);
  }
  /// Whether that output's window ends before input `i`, for every i.
  bool isBehind(ElementEmitter &e, size_t d, const IndexExpr &i, const IndexExpr &t) const {
    IndexExpr first = e.space.divide(e.space.add(i, IndexExpr(pads[d])), strides[d]).second;
    return e.space.minimum(e.space.add(first, e.space.scale(t, strides[d]))) >= span(d);
  }
  ArrayRef<int64_t> kernel, strides, dilations, pads;
};

/// Whether a device compares two 16-bit elements at a time, and keeps their positions beside them in 16 bits too. Lanes
/// share the positions of their windows.
bool isPacked(ElementEmitter &e, MaxPoolOp op, ArrayRef<IndexExpr> at) {
  auto element = dyn_cast<FloatType>(elementOf(op.getX()));
  int64_t plane = 1;
  for (int64_t extent : shapeOf(op.getX()).drop_front(2))
    plane *= extent;
  return e.target.keepsFloatOps && element && element.getWidth() == 16 && plane <= (1 << 16) &&
         e.laneWidth(at) % 2 == 0 && !e.space.isLane(at.drop_front(2));
}

struct MaxPoolModel : LoopLowering::ExternalModel<MaxPoolModel, MaxPoolOp> {
  bool isCheap(Operation *) const { return false; }
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned index, ArrayRef<IndexExpr> at) const {
    auto op = cast<MaxPoolOp>(operation);
    Window<MaxPoolOp> window(op);
    RankedTensorType x = tensorType(op.getX());
    ArrayRef<int64_t> plane = x.getShape().drop_front(2);
    unsigned lanes = e.laneWidth(at);
    // Where all lanes share the position, a repeated element costs less than a condition for each lane. Ties go to the
    // element that comes first, which repetition does not change.
    auto hasNearest = [&](size_t d) {
      return lanes > 1 && !e.space.isLane(at[2 + d]) && window.hasNearest(d, plane[d], shapeOf(op.getY())[2 + d]);
    };
    MathBuilder m(e);
    const bool packed = isPacked(e, op, at);
    Type real = packed ? x.getElementType() : computeType(x.getElementType());
    auto numberOf = [&](ArrayRef<IndexExpr> position) {
      Value number = e.indexAs(e.space.linearize(position, plane), e.b.getI32Type());
      return packed ? Value(arith::TruncIOp::create(e.b, e.b.getI16Type(), number)) : number;
    };
    // A window of -inf alone has its first element, which nothing is larger than.
    SmallVector<IndexExpr> first;
    for (size_t d = 0; d < plane.size(); ++d)
      first.push_back(window.firstInput(e, d, at[2 + d], plane[d]));
    Value best = e.splat(e.constant(real, -INFINITY), lanes), where = e.splat(numberOf(first), lanes);
    auto result = overBox(e, window.kernel, {}, {best, where}, [&](ArrayRef<IndexExpr> k, ValueRange carried) {
      SmallVector<IndexExpr> from(at.take_front(2));
      Value inside;
      for (size_t d = 0; d < k.size(); ++d)
        from.push_back(hasNearest(d) ? window.nearestInput(e, d, at[2 + d], k[d], plane[d])
                                     : window.input(e, d, at[2 + d], k[d], plane[d], inside));
      Value value = e.splat(e.element(op.getX(), from), lanes);
      if (packed)
        value = e.narrow(value, real);
      Value larger = arith::OrIOp::create(e.b, m.compare(arith::CmpFPredicate::OGT, value, carried[0]),
                                          m.compare(arith::CmpFPredicate::UNO, value, value));
      larger = both(e, larger, inside);
      Value position = numberOf(ArrayRef<IndexExpr>(from).drop_front(2));
      return SmallVector<Value>{pick(e, larger, value, carried[0]),
                                pick(e, larger, e.splat(position, lanes), carried[1])};
    });
    if (packed)
      result = {e.widen(result[0]), arith::ExtUIOp::create(e.b, e.typeLike(e.b.getI32Type(), result[1]), result[1])};
    e.define(op.getY(), at, result[0]);
    e.define(op.getIndices(), at, result[1]);
    return result[index];
  }
};

struct MaxPoolBackwardModel : LoopLowering::ExternalModel<MaxPoolBackwardModel, MaxPoolBackwardOp> {
  bool isCheap(Operation *) const { return false; }
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<MaxPoolBackwardOp>(operation);
    Window<MaxPoolBackwardOp> window(op);
    RankedTensorType dx = tensorType(op.getDx());
    ArrayRef<int64_t> outputs = shapeOf(op.getDy()).drop_front(2);
    unsigned lanes = e.laneWidth(at);
    MathBuilder m(e);
    IndexExpr here = e.space.linearize(at.drop_front(2), dx.getShape().drop_front(2));
    Value own = e.indexAs(here, e.b.getI32Type());
    Type running = runningType(dx.getElementType(), numericsOf(op));
    Value zero = e.splat(e.constant(running, 0), lanes);
    Value sum = overBox(e, window.users(), {}, zero, [&](ArrayRef<IndexExpr> t, ValueRange carried) {
      for (size_t d = 0; d < t.size(); ++d)
        if (window.isBehind(e, d, at[2 + d], t[d]))
          return SmallVector<Value>(carried);
      SmallVector<IndexExpr> from(at.take_front(2));
      Value inside;
      for (size_t d = 0; d < t.size(); ++d)
        from.push_back(window.output(e, d, at[2 + d], t[d], outputs[d], inside));
      // One number that no index is says for all lanes that the window is none.
      bool isShared = inside && e.width(inside) == 1 && e.width(own) == 1;
      Value wanted = own;
      if (isShared)
        wanted = arith::SelectOp::create(e.b, inside, own, e.constantLike(own, -1.0));
      Value pair[] = {e.element(op.getIndices(), from), wanted};
      if (!getElementTypeOrSelf(pair[0]).isInteger(32))
        pair[0] = arith::TruncIOp::create(e.b, e.typeLike(e.b.getI32Type(), pair[0]), pair[0]);
      e.unify(pair);
      Value hit = arith::CmpIOp::create(e.b, arith::CmpIPredicate::eq, pair[0], pair[1]);
      if (!isShared)
        hit = both(e, hit, inside);
      Value added = m.add(carried[0], e.splat(m.toFloat(e.element(op.getDy(), from), running), lanes));
      return SmallVector<Value>{pick(e, hit, added, carried[0])};
    })[0];
    return finishSum(e, sum, dx.getElementType());
  }
};

/// The number of values that window `o` averages.
template <typename Op>
Value divisor(ElementEmitter &e, Op op, ArrayRef<IndexExpr> o, ArrayRef<int64_t> plane, Type real) {
  Window<Op> window(op);
  MathBuilder m(e);
  Value product = e.constant(real, 1);
  for (size_t d = 0; d < o.size(); ++d) {
    if (op.getCountIncludePad()) {
      product = m.mul(product, static_cast<double>(window.kernel[d]));
      continue;
    }
    Value count = e.constant(real, 0);
    for (int64_t k = 0; k < window.kernel[d]; ++k) {
      Value inside;
      (void)window.input(e, d, o[d], IndexExpr(k), plane[d], inside);
      Value both[] = {count, pick(e, inside, e.constant(real, 1), e.constant(real, 0))};
      e.unify(both);
      count = m.add(both[0], both[1]);
    }
    Value pair[] = {product, count};
    e.unify(pair);
    product = m.mul(pair[0], pair[1]);
  }
  return product;
}

struct AvgPoolModel : LoopLowering::ExternalModel<AvgPoolModel, AvgPoolOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<AvgPoolOp>(operation);
    Window<AvgPoolOp> window(op);
    RankedTensorType x = tensorType(op.getX());
    ArrayRef<int64_t> plane = x.getShape().drop_front(2);
    unsigned lanes = e.laneWidth(at);
    MathBuilder m(e);
    Type real = runningType(x.getElementType(), numericsOf(op));
    Value zero = e.splat(e.constant(real, 0), lanes);
    Value sum = overBox(e, window.kernel, {}, zero, [&](ArrayRef<IndexExpr> k, ValueRange carried) {
      SmallVector<IndexExpr> from(at.take_front(2));
      Value inside;
      for (size_t d = 0; d < k.size(); ++d)
        from.push_back(window.input(e, d, at[2 + d], k[d], plane[d], inside));
      Value added = m.add(carried[0], e.splat(m.toFloat(e.element(op.getX(), from), real), lanes));
      return SmallVector<Value>{pick(e, inside, added, carried[0])};
    })[0];
    Value pair[] = {sum, divisor(e, op, at.drop_front(2), plane, real)};
    e.unify(pair);
    return finishSum(e, m.div(pair[0], pair[1]), x.getElementType());
  }
};

struct AvgPoolBackwardModel : LoopLowering::ExternalModel<AvgPoolBackwardModel, AvgPoolBackwardOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<AvgPoolBackwardOp>(operation);
    Window<AvgPoolBackwardOp> window(op);
    RankedTensorType dx = tensorType(op.getDx());
    ArrayRef<int64_t> plane = dx.getShape().drop_front(2), outputs = shapeOf(op.getDy()).drop_front(2);
    unsigned lanes = e.laneWidth(at);
    MathBuilder m(e);
    Type real = runningType(dx.getElementType(), numericsOf(op));
    Value zero = e.splat(e.constant(real, 0), lanes);
    Value sum = overBox(e, window.users(), {}, zero, [&](ArrayRef<IndexExpr> t, ValueRange carried) {
      SmallVector<IndexExpr> from(at.take_front(2));
      Value used;
      for (size_t d = 0; d < t.size(); ++d) {
        IndexExpr o = window.output(e, d, at[2 + d], t[d], outputs[d], used);
        from.push_back(o);
        // The distance from the window's start must be one of its taps.
        IndexExpr tap =
            e.space.add(e.space.add(at[2 + d], IndexExpr(window.pads[d])), e.space.scale(o, -window.strides[d]));
        Value number = e.indexAs(tap, e.b.getIndexType());
        Value limit = e.constantLike(number, APInt(64, window.span(d)));
        used = both(e, used, arith::CmpIOp::create(e.b, arith::CmpIPredicate::ult, number, limit));
        if (window.dilations[d] > 1) {
          Value step = e.constantLike(number, APInt(64, window.dilations[d]));
          Value rest = arith::RemUIOp::create(e.b, number, step);
          used = both(e, used, arith::CmpIOp::create(e.b, arith::CmpIPredicate::eq, rest, e.constantLike(rest, 0.0)));
        }
      }
      Value pair[] = {m.toFloat(e.element(op.getDy(), from), real),
                      divisor(e, op, ArrayRef<IndexExpr>(from).drop_front(2), plane, real)};
      e.unify(pair);
      Value added = m.add(carried[0], e.splat(m.div(pair[0], pair[1]), lanes));
      return SmallVector<Value>{pick(e, used, added, carried[0])};
    })[0];
    return finishSum(e, sum, dx.getElementType());
  }
};

} // namespace

void mpt::attachPoolModels(MLIRContext *context) {
  MaxPoolOp::attachInterface<MaxPoolModel>(*context);
  MaxPoolBackwardOp::attachInterface<MaxPoolBackwardModel>(*context);
  AvgPoolOp::attachInterface<AvgPoolModel>(*context);
  AvgPoolBackwardOp::attachInterface<AvgPoolBackwardModel>(*context);
}
