// SPDX-License-Identifier: Apache-2.0
// Gradients of the loss family.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(SoftmaxCrossEntropyOp) {
  Value logits = op.getLogits();
  if (op.getWeights() && b.wants(op.getWeights()))
    return b.unsupported("class weights cannot be trained");
  if (b.dy(0))
    b.give(logits, [&] {
      return b.make<SoftmaxCrossEntropyBackwardOp>(b.dy(0), logits, op.getLabels(), op.getLogSumExp(), op.getTotal(),
                                                   op.getWeights(), op.getReductionAttr(), op.getIgnoreIndexAttr());
    });
  // The gradient of log_sum_exp is softmax(logits).
  if (b.dy(1))
    b.give(logits, [&] {
      ArrayRef<int64_t> shape = tensorType(logits).getShape();
      Value wide = b.widen(logits);
      Value shifted = b.sub(wide, b.broadcastAlong(op.getLogSumExp(), shape, {1}));
      return b.mul(b.broadcastAlong(b.dy(1), shape, {1}), b.make<ExpOp>(shifted));
    });
}

MPT_GRADIENT(SoftmaxCrossEntropyBackwardOp) {
  if (op.getWeights() && b.wants(op.getWeights()))
    return b.unsupported("class weights cannot be trained");
  auto at = [&](Value dloss, Value logits) {
    return b.make<SoftmaxCrossEntropyBackwardOp>(dloss, logits, op.getLabels(), op.getLogSumExp(), op.getTotal(),
                                                 op.getWeights(), op.getReductionAttr(), op.getIgnoreIndexAttr());
  };
  Value logits = op.getLogits(), dloss = op.getDloss();
  int64_t rank = tensorType(logits).getRank();
  // Linear in dloss.
  b.give(dloss, [&] {
    SmallVector<int64_t> axes = tensorType(dloss).getRank() == 0 ? axisRange(0, rank) : axisRange(1, 2);
    return b.sum(b.mul(b.dy(), at(b.splatLike(dloss, 1.0), logits)), axes);
  });
  if (!b.wants(logits) && !b.wants(op.getLogSumExp()))
    return;
  // Only the term of the probability depends on logits; the label's term stays where all probabilities are 0.
  Value slope = b.mul(b.dy(), b.sub(op.getDlogits(), at(dloss, b.splatLike(logits, -1e30))));
  b.give(logits, slope);
  b.give(op.getLogSumExp(), [&] { return b.neg(b.sum(slope, {1})); });
}

MPT_GRADIENT(AlignmentsOp) {
  // Nobody but the backward pass reads the states of all steps, and skips follow from labels.
  if (b.dy(1) || b.wants(op.getSkips()))
    return b.decompose();
  b.give(op.getEmissions(), [&] {
    Value dalphas = b.make<AlignmentsBackwardOp>(b.dy(0), op.getAlphas(), op.getSkips(), op.getOpen());
    Value open = b.compare(Predicate::gt, op.getOpen(), 0.5);
    return b.where(b.broadcastAlong(open, tensorType(dalphas).getShape(), {2}), dalphas);
  });
}

void attachLossGradients(MLIRContext *context) {
  attachGradients<SoftmaxCrossEntropyOp, SoftmaxCrossEntropyBackwardOp, AlignmentsOp>(context);
}

} // namespace mpt
