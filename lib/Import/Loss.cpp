// SPDX-License-Identifier: Apache-2.0
// Losses on class scores with N-D class axis 1: brought to rows of classes.
#include "ClassRows.h"

#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

static FailureOr<LossReduction> reductionOf(Binder &b) {
  StringRef text = b.stringAttr("reduction", "mean");
  if (text == "none")
    return LossReduction::none;
  if (text == "sum")
    return LossReduction::sum;
  if (text == "mean")
    return LossReduction::mean;
  return b.fail() << "expected reduction none, sum or mean, got '" << text << "'";
}

/// Checks scores [N, C, D...] and labels [N, D...].
static LogicalResult check(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  SmallVector<int64_t> want(b.shape(0));
  if (want.size() < 2)
    return b.fail() << "expected scores of rank 2 or more, got [" << b.shape(0) << "]";
  want.erase(want.begin() + 1);
  if (!isa<IntegerType>(b.element(1)) || b.shape(1) != ArrayRef<int64_t>(want))
    return b.fail() << "expected integer labels of shape [" << want << "], got " << b.in(1).getType();
  if (b.has(2) && (failed(b.need(3)) || b.shape(2) != ArrayRef<int64_t>{b.shape(0)[1]}))
    return b.fail() << "expected one weight for each of " << b.shape(0)[1] << " classes, got " << b.in(2).getType();
  return success();
}

static IntegerAttr ignoreIndex(Binder &b) {
  auto value = dyn_cast_or_null<IntegerAttr>(b.attr("ignore_index"));
  return value ? b.i64(value.getInt()) : IntegerAttr();
}

static LogicalResult importSoftmaxCrossEntropyLoss(Binder &b) {
  FailureOr<LossReduction> reduction = reductionOf(b);
  if (failed(reduction) || failed(check(b)))
    return failure();
  Value logits = classRows(b, b.in(0));
  int64_t rows = tensorType(logits).getDimSize(0);
  Value labels = b.reshape(b.in(1), {rows});
  Value weights = b.has(2) ? b.widen(b.in(2)) : Value();
  auto op = SoftmaxCrossEntropyOp::create(b.builder, b.loc, logits, labels, weights, *reduction, ignoreIndex(b));
  Value loss = b.cast(op.getLoss(), b.element(0));
  if (*reduction == LossReduction::none)
    loss = b.reshape(loss, b.shape(1));
  if (b.wants(1) && failed(b.set(1, b.make<LogSoftmaxOp>(b.in(0).getType(), b.in(0), b.i64(1)))))
    return failure();
  return b.done(loss);
}

static LogicalResult importNegativeLogLikelihoodLoss(Binder &b) {
  FailureOr<LossReduction> reduction = reductionOf(b);
  if (failed(reduction) || failed(check(b)))
    return failure();
  Value scores = b.widen(classRows(b, b.in(0)));
  int64_t rows = tensorType(scores).getDimSize(0);
  Value labels = b.cast(b.reshape(b.in(1), {rows}), b.builder.getI64Type());
  Value kept;
  if (IntegerAttr ignored = ignoreIndex(b)) {
    Value skip = b.splatLike(labels, 0);
    kept = b.compare(Predicate::ne, labels, b.constant(DenseElementsAttr::get(tensorType(labels), ignored.getInt())));
    labels = b.select(kept, labels, skip);
  }
  // Labels do not count from the end, as indices do: no gather takes one past the last class.
  double classes = static_cast<double>(tensorType(scores).getDimSize(1));
  labels = b.select(b.compare(Predicate::lt, labels, 0.0), b.splatLike(labels, classes), labels);
  Value picked = b.reshape(b.make<GatherElementsOp>(scores, b.reshape(labels, {rows, 1}), 1), {rows});
  Value weight = b.has(2) ? b.widen(b.make<GatherOp>(b.in(2), labels, 0)) : b.splatLike(picked, 1);
  if (kept)
    weight = b.select(kept, weight, b.splatLike(weight, 0));
  Value loss = b.neg(b.mul(picked, weight));
  if (*reduction != LossReduction::none) {
    Value total = b.sum(weight, {0});
    loss = b.sum(loss, {0});
    if (*reduction == LossReduction::mean)
      loss = b.div(loss, total);
  } else {
    loss = b.reshape(loss, b.shape(1));
  }
  return b.done(b.cast(loss, b.element(0)));
}

/// The value that a backward pass in the file starts from: loss scaling enters here.
static LogicalResult importSeed(Binder &b) {
  auto seed = train::ScaleLossOp::create(b.builder, b.loc, b.in(0), b.scalar(b.builder.getF32Type(), 1.0));
  setAttr<MPTDialect::SeedAttrHelper>(seed, b.builder.getUnitAttr());
  return b.done(seed);
}

void mpt::addLossRules(RuleTable &t) {
  t.onDomain("mpt", "Seed", takesFloats(1, 0, importSeed), NumericClass::Pinned);
  t.on("SoftmaxCrossEntropyLoss", 12, importSoftmaxCrossEntropyLoss, NumericClass::Pinned);
  t.on("NegativeLogLikelihoodLoss", 12, importNegativeLogLikelihoodLoss, NumericClass::Pinned);
}
