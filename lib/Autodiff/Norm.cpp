// SPDX-License-Identifier: Apache-2.0
// Gradients of normalizations and softmax: one composite backward op each. When gradient also arrives at a norm's
// statistics, the decomposition serves.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

/// True when gradient arrives at a result after the first, so that the composite backward op does not say it all.
static bool reachesStatistics(Backward &b, Operation *op) {
  return llvm::any_of(llvm::seq<unsigned>(1, op->getNumResults()), [&](unsigned i) { return b.dy(i); });
}

/// Gives the results of `backward` to x, scale and, where the norm has one, bias.
template <typename Op> static void giveNorm(Backward &b, Op op, Operation *backward) {
  b.give(op.getX(), backward->getResult(0));
  b.give(op.getScale(), backward->getResult(1));
  if (backward->getNumResults() > 2)
    b.give(op->getOperand(2), backward->getResult(2));
}

MPT_GRADIENT(BatchNormOp) {
  if (reachesStatistics(b, op))
    return b.decompose();
  giveNorm(b, op,
           BatchNormBackwardOp::create(b.builder, b.loc, b.dy(), op.getX(), op.getScale(), op.getMean(),
                                       op.getVariance(), op.getEpsilonAttr()));
}
MPT_GRADIENT(LayerNormOp) {
  if (reachesStatistics(b, op))
    return b.decompose();
  giveNorm(b, op,
           LayerNormBackwardOp::create(b.builder, b.loc, b.dy(), op.getX(), op.getScale(), op.getMean(), op.getInvStd(),
                                       op.getAxisAttr()));
}
MPT_GRADIENT(RMSNormOp) {
  if (reachesStatistics(b, op))
    return b.decompose();
  giveNorm(
      b, op,
      RMSNormBackwardOp::create(b.builder, b.loc, b.dy(), op.getX(), op.getScale(), op.getInvRms(), op.getAxisAttr()));
}
MPT_GRADIENT(GroupNormOp) {
  if (reachesStatistics(b, op))
    return b.decompose();
  giveNorm(b, op,
           GroupNormBackwardOp::create(b.builder, b.loc, b.dy(), op.getX(), op.getScale(), op.getMean(), op.getInvStd(),
                                       op.getGroupsAttr()));
}
MPT_GRADIENT(SoftmaxOp) {
  b.give(op.getX(), [&] { return b.make<SoftmaxBackwardOp>(b.dy(), op.getY(), op.getAxisAttr()); });
}
MPT_GRADIENT(LogSoftmaxOp) {
  b.give(op.getX(), [&] { return b.make<LogSoftmaxBackwardOp>(b.dy(), op.getY(), op.getAxisAttr()); });
}

void attachNormGradients(MLIRContext *context) {
  attachGradients<BatchNormOp, LayerNormOp, RMSNormOp, GroupNormOp, SoftmaxOp, LogSoftmaxOp>(context);
}

} // namespace mpt
