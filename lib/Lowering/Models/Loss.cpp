// SPDX-License-Identifier: Apache-2.0
// Losses in simpler core ops.
#include "Decompositions.h"
#include "mpt/Lowering/Models/Models.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Values that both directions of softmax_cross_entropy share: per row, the label, whether it counts and its weight.
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

} // namespace

void mpt::attachLossModels(MLIRContext *context) {
  SoftmaxCrossEntropyOp::attachInterface<CrossEntropy>(*context);
  SoftmaxCrossEntropyBackwardOp::attachInterface<CrossEntropyBackward>(*context);
}
