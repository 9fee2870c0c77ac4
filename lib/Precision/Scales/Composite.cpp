// SPDX-License-Identifier: Apache-2.0
// How loss scales go through GEMMs, normalizations, losses and optimizers.
#include "Rules.h"

#include "mpt/Dialect/MPT/TrainingOps.h"
#include "mpt/Dialect/MPT/UpdateOps.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::scales;

namespace {
/// Linear in the gradients of states and of cell states together, and in nothing else.
struct RecurrenceBackward : GradientScale::ExternalModel<RecurrenceBackward, RecurrenceBackwardOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    constexpr unsigned ofStates = 0, ofCells = 7;
    SmallVector<Value> gradients;
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (i == ofStates || i == ofCells)
        gradients.push_back(operand);
      else if (ScaleType type = inference.of(operand); !type.isUnscaled() && !type.isZero())
        inference.refuse() << "expected operand " << i << " without a scale, got " << type.str();
    setResults(op, inference, meet(inference, gradients).withoutPurity());
  }
};
} // namespace

void scales::attachCompositeScales(MLIRContext *context) {
  attachPlain<Multilinear, MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
  // Gradients are linear in the gradient of the result, which comes first, and in nothing else.
  attach<LinearIn<0>::Model, BatchNormBackwardOp, LayerNormBackwardOp, RMSNormBackwardOp, GroupNormBackwardOp,
         SoftmaxBackwardOp, LogSoftmaxBackwardOp, SoftmaxCrossEntropyBackwardOp, AlignmentsBackwardOp>(context);
  attach<NotHomogeneous, BatchNormOp, LayerNormOp, RMSNormOp, GroupNormOp, SoftmaxOp, LogSoftmaxOp,
         SoftmaxCrossEntropyOp, RecurrenceOp, AlignmentsOp>(context);
  RecurrenceBackwardOp::attachInterface<RecurrenceBackward>(*context);
  // A step of an optimizer is in no proportion to a gradient's scale.
  attach<NotHomogeneous, SGDOp, AdamOp, AdagradOp, MomentumOp, AdamHatOp, RMSPropOp, LionOp, LAMBOp, LARSOp,
         AdafactorOp, EncodeBlocksOp, DecodeBlocksOp>(context);
  // There before the backward pass alone, where nothing has a scale.
  attach<NotHomogeneous, CotangentOp, CustomGradientOp>(context);
  // Formed after the scales are gone from sight; its body is not looked at.
  attach<NotHomogeneous, FusionOp>(context);
}
