// SPDX-License-Identifier: Apache-2.0
// Types of the loss family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(SoftmaxCrossEntropyOp) {
  RankedTensorType logits = tensorType(adaptor.getLogits()), labels = tensorType(adaptor.getLabels());
  if (logits.getRank() != 2 || labels.getShape() != logits.getShape().take_front(1))
    return emitOptionalError(loc, "C1: expected logits [M, C] and labels [M], got ", logits, " and ", labels);
  if (Value weights = adaptor.getWeights())
    if (tensorType(weights).getShape() != logits.getShape().drop_front(1))
      return emitOptionalError(loc, "C2: expected ", logits.getDimSize(1), " class weights, got ", weights.getType());
  Type wide = wideType(logits.getElementType());
  auto rows = RankedTensorType::get(labels.getShape(), wide), scalar = RankedTensorType::get({}, wide);
  types.append({adaptor.getReduction() == LossReduction::none ? rows : scalar, rows, scalar});
  return success();
}
MPT_SAME_SHAPES(SoftmaxCrossEntropyOp)

MPT_INFER(SoftmaxCrossEntropyBackwardOp) {
  types.push_back(adaptor.getLogits().getType());
  return success();
}
MPT_SAME_SHAPES(SoftmaxCrossEntropyBackwardOp)
