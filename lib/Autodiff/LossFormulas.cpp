// SPDX-License-Identifier: Apache-2.0
// The formula of each loss.
#include "mpt/Autodiff/LossFormulas.h"

using namespace mlir;
using namespace mpt;

namespace {

Value meanOfAll(GraphBuilder &b, Value each) { return b.mean(each, axisRange(0, tensorType(each).getRank())); }

/// Quadratic up to `edge`, then linear; `scale` times that.
Value robust(GraphBuilder &b, Value difference, double edge, double scale) {
  Value size = b.make<AbsOp>(difference);
  Value square = b.mul(b.mul(difference, difference), scale / (2 * edge));
  Value line = b.mul(b.add(size, -edge / 2), scale);
  return b.select(b.compare(Predicate::lt, size, edge), square, line);
}

/// The logarithm of 0 meets a factor 0: there it is taken of 1.
Value divergence(GraphBuilder &b, Value x, Value t) {
  Value positive = b.compare(Predicate::gt, t, 0.0);
  Value logarithm = b.make<LogOp>(b.select(positive, t, b.splatLike(t, 1.0)));
  Value each = b.mul(t, b.sub(logarithm, x));
  int64_t rank = tensorType(x).getRank();
  double rows = rank ? static_cast<double>(tensorType(x).getDimSize(0)) : 1.0;
  return b.mul(b.sum(each, axisRange(0, rank)), 1 / rows);
}

Value cosineDistance(GraphBuilder &b, Value x, Value t) {
  int64_t last = tensorType(x).getRank() - 1;
  SmallVector<int64_t> axes = last < 0 ? SmallVector<int64_t>() : SmallVector<int64_t>{last};
  auto dot = [&](Value left, Value right) { return b.sum(b.mul(left, right), axes); };
  Value lengths = b.make<SqrtOp>(b.mul(dot(x, x), dot(t, t)));
  Value cosine = b.div(dot(x, t), b.make<MaxOp>(lengths, b.splatLike(lengths, 1e-8)));
  return meanOfAll(b, b.add(b.neg(cosine), 1.0));
}

} // namespace

Value mpt::lossOfTarget(GraphBuilder &b, const LossSpec &spec, Value x, Value t) {
  switch (spec.kind) {
  case LossKind::bceWithLogits:
    return meanOfAll(b, b.sub(b.make<SoftplusOp>(x), b.mul(x, t)));
  case LossKind::kl:
    return divergence(b, x, t);
  case LossKind::cosine:
    return cosineDistance(b, x, t);
  default:
    break;
  }
  Value difference = b.sub(x, t);
  switch (spec.kind) {
  case LossKind::smoothL1:
    return meanOfAll(b, robust(b, difference, spec.beta, 1.0));
  case LossKind::huber:
    return meanOfAll(b, robust(b, difference, spec.beta, spec.beta));
  case LossKind::mse:
    return meanOfAll(b, b.mul(difference, difference));
  default:
    return meanOfAll(b, b.make<AbsOp>(difference));
  }
}

Value mpt::asClassIndices(GraphBuilder &b, Value labels, int64_t classes) {
  Value negative = b.compare(Predicate::lt, labels, 0.0);
  return b.select(negative, b.splatLike(labels, static_cast<double>(classes)), labels);
}

Value mpt::lossOfLabels(GraphBuilder &b, const LossSpec &spec, Value scores, Value labels) {
  int64_t rows = tensorType(scores).getDimSize(0);
  Value kept;
  if (spec.ignoreIndex) {
    auto ignored = DenseElementsAttr::get(tensorType(labels), *spec.ignoreIndex);
    kept = b.compare(Predicate::ne, labels, b.constant(ignored));
    labels = b.select(kept, labels, b.splatLike(labels, 0));
  }
  Value x = spec.kind == LossKind::focal
                ? b.make<LogSoftmaxOp>(scores.getType(), scores, b.builder.getI64IntegerAttr(1))
                : scores;
  Value indices = asClassIndices(b, labels, tensorType(x).getDimSize(1));
  Value picked = b.reshape(b.make<GatherElementsOp>(x, b.reshape(indices, {rows, 1}), 1), {rows});
  Value each = b.neg(picked);
  if (spec.kind == LossKind::focal) {
    Value rest = b.add(b.neg(b.make<ExpOp>(picked)), 1.0);
    each = b.mul(b.mul(b.make<PowOp>(rest, b.splatLike(rest, spec.gamma)), each), spec.alpha);
  }
  if (!kept)
    return b.mean(each, {0});
  Value weight = b.select(kept, b.splatLike(each, 1.0), b.splatLike(each, 0.0));
  return b.div(b.sum(b.mul(each, weight), {0}), b.sum(weight, {0}));
}
