// SPDX-License-Identifier: Apache-2.0
// Gradients that a model states itself.
#include "Rules.h"

#include "mpt/Dialect/MPT/TrainingOps.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mpt;

/// Builds the ops before `op` anew that depend on values that `anew` maps. Ops that nobody needs are dead.
static void recompute(Backward &b, Operation *op, IRMapping &anew) {
  Operation *first = op;
  for (const auto &[value, _] : anew.getValueMap())
    if (Operation *producer = value.getDefiningOp(); producer && producer->isBeforeInBlock(first))
      first = producer;
  for (Operation *at = first; at != op; at = at->getNextNode())
    if (llvm::any_of(at->getOperands(), [&](Value operand) { return anew.contains(operand); }))
      b.builder.clone(*at, anew);
}

namespace mpt {

MPT_GRADIENT(CustomGradientOp) {
  IRMapping anew;
  for (auto [i, cotangent] : llvm::enumerate(op.getCotangents()))
    anew.map(cotangent, b.dy(i) ? b.dy(i) : b.splatLike(cotangent, 0.0));
  if (!anew.getValueMap().empty())
    recompute(b, op, anew);
  for (auto [input, gradient] : llvm::zip_equal(op.getInputs(), op.getGradients()))
    b.give(input, anew.lookupOrDefault(gradient));
}

void attachTrainingGradients(MLIRContext *context) { attachGradients<CustomGradientOp>(context); }

} // namespace mpt
