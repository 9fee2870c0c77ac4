// SPDX-License-Identifier: Apache-2.0
// Losses, optimizers and the training arithmetic in simpler core ops, for targets without kernels of their own.
#include "ScaleDecompositions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

namespace {

using Values = FailureOr<SmallVector<Value>>;

/// A scalar in every element of a tensor of `like`'s shape.
Value everywhere(GraphBuilder &b, Value scalar, Value like) { return b.broadcast(scalar, shapeOf(like), {}); }

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

/// What both directions of softmax_cross_entropy share: per row, the label, whether it counts and its weight.
struct Labels {
  Labels(GraphBuilder &b, Value logits, Value labels, Value weights, std::optional<int64_t> ignored)
      : shape(shapeOf(logits)) {
    Type wide = wideType(elementOf(logits));
    auto rows = RankedTensorType::get({shape[0]}, wide);
    // Positions of the classes in the labels' own integer type.
    auto classes = RankedTensorType::get({shape[1]}, elementOf(labels));
    Value numbers = IotaOp::create(b.builder, b.loc, classes, 0);
    Value wrapped = b.select(b.compare(Predicate::lt, labels, 0), b.add(labels, shape[1]), labels);
    hit = b.compare(Predicate::eq, b.broadcast(wrapped, shape, {0}), b.broadcast(numbers, shape, {1}));
    weight = b.splat(rows, 1);
    if (weights) {
      Value all = b.broadcast(b.cast(weights, wide), shape, {1});
      weight = b.sum(b.select(hit, all, b.splatLike(all, 0)), {1});
    }
    if (ignored) {
      Value kept = b.compare(Predicate::ne, labels, static_cast<double>(*ignored));
      weight = b.select(kept, weight, b.splatLike(weight, 0));
    }
  }
  ArrayRef<int64_t> shape;
  Value hit, weight;
};

std::optional<int64_t> ignoredLabel(IntegerAttr attr) {
  return attr ? std::optional<int64_t>(attr.getInt()) : std::nullopt;
}

struct CrossEntropy : Decomposable::ExternalModel<CrossEntropy, SoftmaxCrossEntropyOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<SoftmaxCrossEntropyOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Labels labels(b, op.getLogits(), op.getLabels(), op.getWeights(), ignoredLabel(op.getIgnoreIndexAttr()));
    Value x = b.widen(op.getLogits());
    Value top = b.reduce(ReduceKind::max, x, {1});
    // A row whose logits are all -inf must not become inf - inf before the logarithm.
    Value sum = b.sum(b.make<ExpOp>(b.sub(x, b.broadcast(top, labels.shape, {0}))), {1});
    Value logSum = b.add(b.make<LogOp>(sum), top);
    Value picked = b.sum(b.select(labels.hit, x, b.splatLike(x, 0)), {1});
    Value rows = b.mul(b.sub(logSum, picked), labels.weight);
    rows = b.select(b.compare(Predicate::eq, labels.weight, 0), b.splatLike(rows, 0), rows);
    Value total = b.sum(labels.weight, {0}), loss = rows;
    if (op.getReduction() != LossReduction::none)
      loss = b.sum(rows, {0});
    if (op.getReduction() == LossReduction::mean)
      loss = b.div(loss, total);
    return SmallVector<Value>{b.cast(loss, elementOf(op.getLoss())), b.cast(logSum, elementOf(op.getLogSumExp())),
                              b.cast(total, elementOf(op.getTotal()))};
  }
};

struct CrossEntropyBackward : Decomposable::ExternalModel<CrossEntropyBackward, SoftmaxCrossEntropyBackwardOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<SoftmaxCrossEntropyBackwardOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Labels labels(b, op.getLogits(), op.getLabels(), op.getWeights(), ignoredLabel(op.getIgnoreIndexAttr()));
    Value x = b.widen(op.getLogits());
    Type wide = elementOf(x);
    Value p = b.make<ExpOp>(b.sub(x, b.broadcast(b.cast(op.getLogSumExp(), wide), labels.shape, {0})));
    Value dloss = b.cast(op.getDloss(), wide);
    if (op.getReduction() == LossReduction::mean)
      dloss = b.div(dloss, b.cast(op.getTotal(), wide));
    if (op.getReduction() != LossReduction::none)
      dloss = everywhere(b, dloss, labels.weight);
    Value scale = b.mul(labels.weight, dloss);
    scale = b.select(b.compare(Predicate::eq, labels.weight, 0), b.splatLike(scale, 0), scale);
    Value one = b.select(labels.hit, b.splatLike(x, 1), b.splatLike(x, 0));
    Value dx = b.mul(b.sub(p, one), b.broadcast(scale, labels.shape, {0}));
    return SmallVector<Value>{b.cast(dx, elementOf(op.getDlogits()))};
  }
};

//===----------------------------------------------------------------------===//
// Optimizers
//===----------------------------------------------------------------------===//

/// 1 - beta^step in FP64, where the difference keeps its digits.
Value biasCorrection(GraphBuilder &b, Value step, double beta) {
  Value t = b.cast(step, b.builder.getF64Type());
  return b.add(b.neg(b.make<PowOp>(b.splatLike(t, beta), t)), 1.0);
}

struct SGD : Decomposable::ExternalModel<SGD, SGDOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<SGDOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value p = op.getParam();
    Type type = elementOf(p);
    Value g = b.cast(op.getGrad(), type), lr = everywhere(b, b.cast(op.getLr(), type), p);
    if (double decay = op.getWeightDecay().convertToDouble())
      g = b.add(g, b.mul(p, decay));
    SmallVector<Value> results;
    if (op.getSlot()) {
      double momentum = op.getMomentum().convertToDouble(), dampening = op.getDampening().convertToDouble();
      Value m = b.cast(op.getSlot(), type);
      Value next = b.add(b.mul(m, momentum), b.mul(g, 1 - dampening));
      // Slots start at zero, so that the first step differs only with dampening.
      if (dampening != 0) {
        Value first = b.compare(Predicate::eq, op.getStep(), 1);
        next = b.select(everywhere(b, first, p), g, next);
      }
      results.push_back(b.cast(next, elementOf(op.getSlot())));
      g = op.getNesterov() ? b.add(g, b.mul(next, momentum)) : next;
    }
    results.insert(results.begin(), b.sub(p, b.mul(lr, g)));
    return results;
  }
};

struct Adam : Decomposable::ExternalModel<Adam, AdamOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<AdamOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value p = op.getParam();
    Type type = elementOf(p), f64 = builder.getF64Type();
    double beta1 = op.getBeta1().convertToDouble(), beta2 = op.getBeta2().convertToDouble();
    double decay = op.getWeightDecay().convertToDouble();
    Value g = b.cast(op.getGrad(), type), m = b.cast(op.getMoment1(), type), v = b.cast(op.getMoment2(), type);
    Value lr = b.cast(op.getLr(), f64);
    Value rate = b.cast(b.div(lr, biasCorrection(b, op.getStep(), beta1)), type);
    Value root = b.cast(b.make<SqrtOp>(biasCorrection(b, op.getStep(), beta2)), type);
    if (decay != 0 && op.getDecoupled())
      p = b.sub(p, b.mul(everywhere(b, b.cast(b.mul(lr, decay), type), p), p));
    else if (decay != 0)
      g = b.add(g, b.mul(p, decay));
    Value m1 = b.add(b.mul(m, beta1), b.mul(g, 1 - beta1));
    Value v1 = b.add(b.mul(v, beta2), b.mul(b.mul(g, g), 1 - beta2));
    Value scale = b.add(b.div(b.make<SqrtOp>(v1), everywhere(b, root, v1)), op.getEpsilon().convertToDouble());
    Value next = b.sub(p, b.mul(everywhere(b, rate, p), b.div(m1, scale)));
    return SmallVector<Value>{next, b.cast(m1, elementOf(op.getMoment1())), b.cast(v1, elementOf(op.getMoment2()))};
  }
};

struct Adagrad : Decomposable::ExternalModel<Adagrad, AdagradOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<AdagradOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value p = op.getParam();
    Type type = elementOf(p), f64 = builder.getF64Type();
    Value g = b.cast(op.getGrad(), type), h = b.cast(op.getAccumulator(), type);
    if (double decay = op.getWeightDecay().convertToDouble())
      g = b.add(g, b.mul(p, decay));
    Value past = b.add(b.cast(op.getStep(), f64), -1.0);
    Value rate = b.div(b.cast(op.getLr(), f64), b.add(b.mul(past, op.getLrDecay().convertToDouble()), 1.0));
    Value next = b.add(h, b.mul(g, g));
    Value scale = b.add(b.make<SqrtOp>(next), op.getEpsilon().convertToDouble());
    Value q = b.mul(everywhere(b, b.cast(rate, type), p), b.div(g, scale));
    return SmallVector<Value>{b.sub(p, q), b.cast(next, elementOf(op.getAccumulator()))};
  }
};

//===----------------------------------------------------------------------===//
// Training arithmetic
//===----------------------------------------------------------------------===//

SmallVector<int64_t> allAxes(Value value) { return axisRange(0, rankOf(value)); }

struct Unscale : Decomposable::ExternalModel<Unscale, train::UnscaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::UnscaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Type type = elementOf(op.getResult());
    Value inverse = b.make<ReciprocalOp>(b.cast(op.getScale(), type)), g = b.cast(op.getGradient(), type);
    return SmallVector<Value>{b.mul(g, everywhere(b, inverse, g))};
  }
};
struct ScaleLoss : Decomposable::ExternalModel<ScaleLoss, train::ScaleLossOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::ScaleLossOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value scale = b.cast(op.getScale(), elementOf(op.getSeed()));
    return SmallVector<Value>{b.mul(op.getSeed(), everywhere(b, scale, op.getSeed()))};
  }
};
/// The largest magnitude tells: infinity and NaN survive a maximum.
struct AllFinite : Decomposable::ExternalModel<AllFinite, train::AllFiniteOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::AllFiniteOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value all;
    for (Value value : op.getValues()) {
      Value finite = b.make<IsFiniteOp>(b.reduce(ReduceKind::max, b.make<AbsOp>(value), allAxes(value)));
      all = all ? b.make<AndOp>(all, finite) : finite;
    }
    return SmallVector<Value>{all ? all : b.scalar(builder.getI1Type(), 1)};
  }
};
struct GlobalNorm : Decomposable::ExternalModel<GlobalNorm, train::GlobalNormOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::GlobalNormOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Type type = elementOf(op.getNorm());
    Value sum;
    for (Value value : op.getValues()) {
      Value wide = b.cast(value, type), part = b.sum(b.mul(wide, wide), allAxes(value));
      sum = sum ? b.add(sum, part) : part;
    }
    return SmallVector<Value>{sum ? b.make<SqrtOp>(sum) : b.scalar(type, 0)};
  }
};
struct UpdateScale : Decomposable::ExternalModel<UpdateScale, train::UpdateScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::UpdateScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value scale = op.getScale(), finite = op.getFinite();
    double most = op.getMax().convertToDouble(), least = op.getMin().convertToDouble();
    Value grown = b.mul(scale, op.getGrowth().convertToDouble());
    grown = b.select(b.make<IsFiniteOp>(grown), b.make<MinOp>(grown, b.splatLike(grown, most)), scale);
    Value good = b.add(op.getGoodSteps(), 1.0);
    Value due = b.compare(Predicate::ge, good, static_cast<double>(op.getInterval()));
    Value left = b.add(op.getHysteresisLeft(), -1.0);
    Value lowered = b.make<MaxOp>(b.mul(scale, op.getBackoff().convertToDouble()), b.splatLike(scale, least));
    lowered = b.select(b.compare(Predicate::le, left, 0), lowered, scale);
    Value zero = b.splatLike(good, 0), full = b.splatLike(left, static_cast<double>(op.getHysteresis()));
    return SmallVector<Value>{b.select(finite, b.select(due, grown, scale), lowered),
                              b.select(finite, b.select(due, zero, good), zero), b.select(finite, full, left)};
  }
};

} // namespace

void mpt::attachDecompositions(MLIRContext *context) {
  SoftmaxCrossEntropyOp::attachInterface<CrossEntropy>(*context);
  SoftmaxCrossEntropyBackwardOp::attachInterface<CrossEntropyBackward>(*context);
  SGDOp::attachInterface<SGD>(*context);
  AdamOp::attachInterface<Adam>(*context);
  AdagradOp::attachInterface<Adagrad>(*context);
}

void mpt::attachTrainDecompositions(MLIRContext *context) {
  train::UnscaleOp::attachInterface<Unscale>(*context);
  train::ScaleLossOp::attachInterface<ScaleLoss>(*context);
  train::AllFiniteOp::attachInterface<AllFinite>(*context);
  train::GlobalNormOp::attachInterface<GlobalNorm>(*context);
  train::UpdateScaleOp::attachInterface<UpdateScale>(*context);
  attachScaleDecompositions(context);
}
