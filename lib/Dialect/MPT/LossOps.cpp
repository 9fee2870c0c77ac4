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

/// States [T, N, S] of all steps, and the operands that each step reads beside them.
template <typename Adaptor>
static LogicalResult checkAlignments(std::optional<Location> loc, Adaptor op, StringRef what, RankedTensorType states) {
  if (states.getRank() != 3 || states.getDimSize(0) < 1 || states.getDimSize(2) < 3)
    return emitOptionalError(loc, "C1: expected ", what, " [T, N, S] with T from 1 and S from 3 on, got ", states);
  ArrayRef<int64_t> shape = states.getShape();
  if (tensorType(op.getSkips()).getShape() != shape.drop_front())
    return emitOptionalError(loc, "C2: expected skips [", shape.drop_front(), "], got ", op.getSkips().getType());
  if (tensorType(op.getOpen()).getShape() != shape.drop_back())
    return emitOptionalError(loc, "C3: expected open [", shape.drop_back(), "], got ", op.getOpen().getType());
  return success();
}

MPT_INFER(AlignmentsOp) {
  RankedTensorType emissions = tensorType(adaptor.getEmissions());
  if (failed(checkAlignments(loc, adaptor, "emissions", emissions)))
    return failure();
  types.append({emissions.clone(emissions.getShape().drop_front()), emissions});
  return success();
}

MPT_INFER(AlignmentsBackwardOp) {
  RankedTensorType alphas = tensorType(adaptor.getAlphas());
  if (failed(checkAlignments(loc, adaptor, "alphas", alphas)))
    return failure();
  if (tensorType(adaptor.getDlast()).getShape() != alphas.getShape().drop_front())
    return emitOptionalError(loc, "C4: expected dlast [", alphas.getShape().drop_front(), "], got ",
                             adaptor.getDlast().getType());
  types.push_back(alphas);
  return success();
}
