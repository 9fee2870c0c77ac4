// SPDX-License-Identifier: Apache-2.0
// Norms and softmax in elementwise and reduce ops, computed in FP32 or wider.
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Normalization over `axes` of x (already wide): the pieces that all norms share.
struct Normalization {
  Normalization(OpBuilder &builder, Location loc, Value x, ArrayRef<int64_t> axes)
      : b(builder, loc), x(b.widen(x)), shape(tensorType(x).getShape()), axes(axes) {}

  Value along(Value statistic) { return b.broadcastAlong(statistic, shape, axes); }
  Value mean(Value value) { return b.mean(value, axes); }
  /// Biased variance around `mean`, by the two-pass formula.
  Value variance(Value mean) {
    Value centered = b.sub(x, along(mean));
    return b.mean(b.mul(centered, centered), axes);
  }
  Value invStd(Value variance, double epsilon) { return b.make<RsqrtOp>(b.add(variance, epsilon)); }
  Value normalized(Value mean, Value invStd) { return b.mul(b.sub(x, along(mean)), along(invStd)); }
  /// dx from g = dy scale: inv_std (g - mean(g) - xhat mean(g xhat)); without the mean(g) term where x was not
  /// centered.
  Value inputGradient(Value g, Value xhat, Value invStd, bool centered) {
    Value rest = b.sub(g, b.mul(xhat, along(mean(b.mul(g, xhat)))));
    if (centered)
      rest = b.sub(rest, along(mean(g)));
    return b.mul(rest, along(invStd));
  }

  GraphBuilder b;
  Value x;
  ArrayRef<int64_t> shape;
  ArrayRef<int64_t> axes;
};

Value castLike(GraphBuilder &b, Value value, Value like) { return b.cast(value, tensorType(like).getElementType()); }

/// All axes but the channel axis 1.
SmallVector<int64_t> allButChannel(Value x) { return otherAxes(tensorType(x).getRank(), {1}); }

} // namespace

FailureOr<SmallVector<Value>> BatchNormOp::decompose(OpBuilder &builder) {
  SmallVector<int64_t> axes = allButChannel(getX());
  Normalization n(builder, getLoc(), getX(), axes);
  // Two passes: sums around any shift but the mean itself lose digits that gradients of deep networks need.
  Value mean = n.mean(n.x), variance = n.variance(mean);
  Value xhat = n.normalized(mean, n.invStd(variance, getEpsilon().convertToDouble()));
  Value y = n.b.add(n.b.mul(xhat, n.along(n.b.widen(getScale()))), n.along(n.b.widen(getBias())));
  return SmallVector<Value>{castLike(n.b, y, getY()), castLike(n.b, mean, getMean()),
                            castLike(n.b, variance, getVariance())};
}

FailureOr<SmallVector<Value>> BatchNormBackwardOp::decompose(OpBuilder &builder) {
  SmallVector<int64_t> axes = allButChannel(getX());
  Normalization n(builder, getLoc(), getX(), axes);
  Value dy = n.b.widen(getDy()), invStd = n.invStd(n.b.widen(getVariance()), getEpsilon().convertToDouble());
  Value xhat = n.normalized(n.b.widen(getMean()), invStd);
  Value dbias = n.b.sum(dy, axes), dscale = n.b.sum(n.b.mul(dy, xhat), axes);
  Value dx = n.inputGradient(n.b.mul(dy, n.along(n.b.widen(getScale()))), xhat, invStd, /*centered=*/true);
  return SmallVector<Value>{castLike(n.b, dx, getDx()), castLike(n.b, dscale, getDscale()),
                            castLike(n.b, dbias, getDbias())};
}

FailureOr<SmallVector<Value>> LayerNormOp::decompose(OpBuilder &builder) {
  int64_t rank = tensorType(getX()).getRank(), axis = getAxis();
  SmallVector<int64_t> axes = axisRange(axis, rank);
  Normalization n(builder, getLoc(), getX(), axes);
  Value mean = n.mean(n.x), invStd = n.invStd(n.variance(mean), getEpsilon().convertToDouble());
  Value scale = n.b.broadcast(n.b.widen(getScale()), n.shape, axes),
        bias = n.b.broadcast(n.b.widen(getBias()), n.shape, axes);
  Value y = n.b.add(n.b.mul(n.normalized(mean, invStd), scale), bias);
  return SmallVector<Value>{castLike(n.b, y, getY()), castLike(n.b, mean, getMean()),
                            castLike(n.b, invStd, getInvStd())};
}

FailureOr<SmallVector<Value>> LayerNormBackwardOp::decompose(OpBuilder &builder) {
  int64_t rank = tensorType(getX()).getRank(), axis = getAxis();
  SmallVector<int64_t> axes = axisRange(axis, rank), lead = axisRange(0, axis);
  Normalization n(builder, getLoc(), getX(), axes);
  Value dy = n.b.widen(getDy()), invStd = n.b.widen(getInvStd()), xhat = n.normalized(n.b.widen(getMean()), invStd);
  Value g = n.b.mul(dy, n.b.broadcast(n.b.widen(getScale()), n.shape, axes));
  Value dx = n.inputGradient(g, xhat, invStd, /*centered=*/true);
  Value dscale = n.b.sum(n.b.mul(dy, xhat), lead), dbias = n.b.sum(dy, lead);
  return SmallVector<Value>{castLike(n.b, dx, getDx()), castLike(n.b, dscale, getDscale()),
                            castLike(n.b, dbias, getDbias())};
}

FailureOr<SmallVector<Value>> RMSNormOp::decompose(OpBuilder &builder) {
  int64_t rank = tensorType(getX()).getRank(), axis = getAxis();
  SmallVector<int64_t> axes = axisRange(axis, rank);
  Normalization n(builder, getLoc(), getX(), axes);
  Value invRms = n.invStd(n.mean(n.b.mul(n.x, n.x)), getEpsilon().convertToDouble());
  Value y = n.b.mul(n.b.mul(n.x, n.along(invRms)), n.b.broadcast(n.b.widen(getScale()), n.shape, axes));
  return SmallVector<Value>{castLike(n.b, y, getY()), castLike(n.b, invRms, getInvRms())};
}

FailureOr<SmallVector<Value>> RMSNormBackwardOp::decompose(OpBuilder &builder) {
  int64_t rank = tensorType(getX()).getRank(), axis = getAxis();
  SmallVector<int64_t> axes = axisRange(axis, rank), lead = axisRange(0, axis);
  Normalization n(builder, getLoc(), getX(), axes);
  Value dy = n.b.widen(getDy()), invRms = n.b.widen(getInvRms()), xhat = n.b.mul(n.x, n.along(invRms));
  Value g = n.b.mul(dy, n.b.broadcast(n.b.widen(getScale()), n.shape, axes));
  Value dx = n.inputGradient(g, xhat, invRms, /*centered=*/false);
  Value dscale = n.b.sum(n.b.mul(dy, xhat), lead);
  return SmallVector<Value>{castLike(n.b, dx, getDx()), castLike(n.b, dscale, getDscale())};
}

/// Group norm is layer norm of x as [N, groups, C/groups, S...] over its last axes, with scale and bias per channel.
static SmallVector<int64_t> groupedShape(ArrayRef<int64_t> shape, int64_t groups) {
  SmallVector<int64_t> result{shape[0], groups, shape[1] / groups};
  result.append(shape.begin() + 2, shape.end());
  return result;
}

FailureOr<SmallVector<Value>> GroupNormOp::decompose(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  ArrayRef<int64_t> shape = tensorType(getX()).getShape();
  SmallVector<int64_t> grouped = groupedShape(shape, getGroups()), axes = axisRange(2, grouped.size());
  Normalization n(builder, getLoc(), b.reshape(getX(), grouped), axes);
  Value mean = n.mean(n.x), invStd = n.invStd(n.variance(mean), getEpsilon().convertToDouble());
  Value xhat = b.reshape(n.normalized(mean, invStd), shape);
  Value y =
      b.add(b.mul(xhat, b.broadcast(b.widen(getScale()), shape, {1})), b.broadcast(b.widen(getBias()), shape, {1}));
  return SmallVector<Value>{castLike(b, y, getY()), castLike(b, mean, getMean()), castLike(b, invStd, getInvStd())};
}

FailureOr<SmallVector<Value>> GroupNormBackwardOp::decompose(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  ArrayRef<int64_t> shape = tensorType(getX()).getShape();
  SmallVector<int64_t> grouped = groupedShape(shape, getGroups()), axes = axisRange(2, grouped.size());
  SmallVector<int64_t> notChannel = allButChannel(getX());
  Normalization n(builder, getLoc(), b.reshape(getX(), grouped), axes);
  Value invStd = b.widen(getInvStd()), xhat = n.normalized(b.widen(getMean()), invStd);
  Value dy = b.widen(getDy()), flat = b.reshape(xhat, shape);
  Value g = b.reshape(b.mul(dy, b.broadcast(b.widen(getScale()), shape, {1})), grouped);
  Value dx = b.reshape(n.inputGradient(g, xhat, invStd, /*centered=*/true), shape);
  Value dscale = b.sum(b.mul(dy, flat), notChannel), dbias = b.sum(dy, notChannel);
  return SmallVector<Value>{castLike(b, dx, getDx()), castLike(b, dscale, getDscale()), castLike(b, dbias, getDbias())};
}

FailureOr<SmallVector<Value>> SoftmaxOp::decompose(OpBuilder &builder) {
  SmallVector<int64_t> axes{static_cast<int64_t>(getAxis())};
  Normalization n(builder, getLoc(), getX(), axes);
  Value e = n.b.make<ExpOp>(n.b.sub(n.x, n.along(n.b.reduce(ReduceKind::max, n.x, axes))));
  return SmallVector<Value>{castLike(n.b, n.b.div(e, n.along(n.b.sum(e, axes))), getY())};
}

FailureOr<SmallVector<Value>> SoftmaxBackwardOp::decompose(OpBuilder &builder) {
  SmallVector<int64_t> axes{static_cast<int64_t>(getAxis())};
  Normalization n(builder, getLoc(), getDy(), axes);
  Value y = n.b.widen(getY());
  Value dx = n.b.mul(y, n.b.sub(n.x, n.along(n.b.sum(n.b.mul(n.x, y), axes))));
  return SmallVector<Value>{castLike(n.b, dx, getDx())};
}

FailureOr<SmallVector<Value>> LogSoftmaxOp::decompose(OpBuilder &builder) {
  SmallVector<int64_t> axes{static_cast<int64_t>(getAxis())};
  Normalization n(builder, getLoc(), getX(), axes);
  Value shifted = n.b.sub(n.x, n.along(n.b.reduce(ReduceKind::max, n.x, axes)));
  Value logSum = n.b.make<LogOp>(n.b.sum(n.b.make<ExpOp>(shifted), axes));
  return SmallVector<Value>{castLike(n.b, n.b.sub(shifted, n.along(logSum)), getY())};
}

FailureOr<SmallVector<Value>> LogSoftmaxBackwardOp::decompose(OpBuilder &builder) {
  SmallVector<int64_t> axes{static_cast<int64_t>(getAxis())};
  Normalization n(builder, getLoc(), getDy(), axes);
  Value y = n.b.widen(getY());
  Value dx = n.b.sub(n.x, n.b.mul(n.b.make<ExpOp>(y), n.along(n.b.sum(n.x, axes))));
  return SmallVector<Value>{castLike(n.b, dx, getDx())};
}
