// SPDX-License-Identifier: Apache-2.0
// Types of the loss family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

/// Logits [M, C], labels [M], weights [C].
template <typename Adaptor> static LogicalResult checkRows(std::optional<Location> loc, Adaptor op) {
  RankedTensorType logits = tensorType(op.getLogits()), labels = tensorType(op.getLabels());
  if (logits.getRank() != 2 || labels.getShape() != logits.getShape().take_front(1))
    return emitOptionalError(loc, "C1: expected logits [M, C] and labels [M], got ", logits, " and ", labels);
  if (Value weights = op.getWeights())
    if (tensorType(weights).getShape() != logits.getShape().drop_front(1))
      return emitOptionalError(loc, "C2: expected ", logits.getDimSize(1), " class weights, got ", weights.getType());
  return success();
}

MPT_INFER(SoftmaxCrossEntropyOp) {
  if (failed(checkRows(loc, adaptor)))
    return failure();
  RankedTensorType logits = tensorType(adaptor.getLogits()), labels = tensorType(adaptor.getLabels());
  Type wide = wideType(logits.getElementType());
  auto rows = RankedTensorType::get(labels.getShape(), wide), scalar = RankedTensorType::get({}, wide);
  types.append({adaptor.getReduction() == LossReduction::none ? rows : scalar, rows, scalar});
  return success();
}
MPT_SAME_SHAPES(SoftmaxCrossEntropyOp)

MPT_INFER(SoftmaxCrossEntropyBackwardOp) {
  types.push_back(adaptor.getLogits().getType());
  if (failed(checkRows(loc, adaptor)))
    return failure();
  ArrayRef<int64_t> rows = tensorType(adaptor.getLabels()).getShape(), scalar;
  for (auto [name, value, shape] : {std::tuple(StringRef("log_sum_exp"), adaptor.getLogSumExp(), rows),
                                    std::tuple(StringRef("total"), adaptor.getTotal(), scalar),
                                    std::tuple(StringRef("dloss"), adaptor.getDloss(),
                                               adaptor.getReduction() == LossReduction::none ? rows : scalar)})
    if (tensorType(value).getShape() != shape)
      return emitOptionalError(loc, "expected ", name, " of shape [", shape, "], got ", value.getType());
  return success();
}
MPT_SAME_SHAPES(SoftmaxCrossEntropyBackwardOp)
