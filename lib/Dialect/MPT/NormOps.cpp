// SPDX-License-Identifier: Apache-2.0
// Types of the norm family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

static LogicalResult checkExtents(std::optional<Location> loc, StringRef what, Value value, ArrayRef<int64_t> shape) {
  if (tensorType(value).getShape() != shape)
    return emitOptionalError(loc, "C1: expected ", what, " of shape [", shape, "] as x has it, got ", value.getType());
  return success();
}

/// Operands of the gradients of normalizations: dy like x, the scale and the statistics of the forward pass.
template <typename Adaptor>
static LogicalResult checkSaved(std::optional<Location> loc, Adaptor op, ArrayRef<int64_t> scale,
                                ArrayRef<std::pair<StringRef, Value>> statistics, ArrayRef<int64_t> extents) {
  if (failed(checkExtents(loc, "dy", op.getDy(), tensorType(op.getX()).getShape())) ||
      failed(checkExtents(loc, "scale", op.getScale(), scale)))
    return failure();
  for (auto [name, value] : statistics)
    if (failed(checkExtents(loc, name, value, extents)))
      return failure();
  return success();
}

static LogicalResult checkAxis(std::optional<Location> loc, RankedTensorType x, int64_t axis) {
  if (axis < 0 || axis >= x.getRank())
    return emitOptionalError(loc, "expected an axis below ", x.getRank(), ", got ", axis);
  return success();
}

/// FP32-or-wider tensor of `shape`.
static RankedTensorType wideTensor(RankedTensorType x, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, wideType(x.getElementType()));
}

MPT_INFER(BatchNormOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  if (x.getRank() < 2)
    return emitOptionalError(loc, "expected x of rank 2 or more, got ", x);
  ArrayRef<int64_t> channels = x.getShape().slice(1, 1);
  types.append({x, wideTensor(x, channels), wideTensor(x, channels)});
  return success(succeeded(checkExtents(loc, "scale", adaptor.getScale(), channels)) &&
                 succeeded(checkExtents(loc, "bias", adaptor.getBias(), channels)));
}
MPT_INFER(BatchNormBackwardOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  if (x.getRank() < 2)
    return emitOptionalError(loc, "expected x of rank 2 or more, got ", x);
  ArrayRef<int64_t> channels = x.getShape().slice(1, 1);
  types.append({x, adaptor.getScale().getType(), adaptor.getScale().getType()});
  return checkSaved(loc, adaptor, channels, {{"mean", adaptor.getMean()}, {"variance", adaptor.getVariance()}},
                    channels);
}
MPT_INFER(LayerNormOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(loc, x, axis)))
    return failure();
  RankedTensorType statistics = wideTensor(x, x.getShape().take_front(axis));
  types.append({x, statistics, statistics});
  return success(succeeded(checkExtents(loc, "scale", adaptor.getScale(), x.getShape().drop_front(axis))) &&
                 succeeded(checkExtents(loc, "bias", adaptor.getBias(), x.getShape().drop_front(axis))));
}
MPT_INFER(LayerNormBackwardOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(loc, x, axis)))
    return failure();
  types.append({x, adaptor.getScale().getType(), adaptor.getScale().getType()});
  return checkSaved(loc, adaptor, x.getShape().drop_front(axis),
                    {{"mean", adaptor.getMean()}, {"inv_std", adaptor.getInvStd()}}, x.getShape().take_front(axis));
}
MPT_INFER(RMSNormOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(loc, x, axis)))
    return failure();
  types.append({x, wideTensor(x, x.getShape().take_front(axis))});
  return checkExtents(loc, "scale", adaptor.getScale(), x.getShape().drop_front(axis));
}
MPT_INFER(RMSNormBackwardOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(loc, x, axis)))
    return failure();
  types.append({x, adaptor.getScale().getType()});
  return checkSaved(loc, adaptor, x.getShape().drop_front(axis), {{"inv_rms", adaptor.getInvRms()}},
                    x.getShape().take_front(axis));
}
static LogicalResult checkGroups(std::optional<Location> loc, RankedTensorType x, int64_t groups) {
  if (x.getRank() < 2 || groups < 1 || x.getDimSize(1) % groups != 0)
    return emitOptionalError(loc, "C1: expected channels divisible by ", groups, " groups, got ", x);
  return success();
}
MPT_INFER(GroupNormOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t groups = adaptor.getGroups();
  if (failed(checkGroups(loc, x, groups)))
    return failure();
  RankedTensorType statistics = wideTensor(x, {x.getDimSize(0), groups});
  types.append({x, statistics, statistics});
  ArrayRef<int64_t> channels = x.getShape().slice(1, 1);
  return success(succeeded(checkExtents(loc, "scale", adaptor.getScale(), channels)) &&
                 succeeded(checkExtents(loc, "bias", adaptor.getBias(), channels)));
}
MPT_INFER(GroupNormBackwardOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t groups = adaptor.getGroups();
  if (failed(checkGroups(loc, x, groups)))
    return failure();
  types.append({x, adaptor.getScale().getType(), adaptor.getScale().getType()});
  return checkSaved(loc, adaptor, x.getShape().slice(1, 1),
                    {{"mean", adaptor.getMean()}, {"inv_std", adaptor.getInvStd()}}, {x.getDimSize(0), groups});
}
MPT_INFER(SoftmaxOp) {
  types.push_back(adaptor.getX().getType());
  return checkAxis(loc, tensorType(adaptor.getX()), adaptor.getAxis());
}
MPT_INFER(SoftmaxBackwardOp) {
  types.push_back(adaptor.getDy().getType());
  if (tensorType(adaptor.getY()).getShape() != tensorType(adaptor.getDy()).getShape())
    return emitOptionalError(loc, "expected y of dy's shape, got ", adaptor.getY().getType());
  return checkAxis(loc, tensorType(adaptor.getDy()), adaptor.getAxis());
}
MPT_INFER(LogSoftmaxOp) {
  types.push_back(adaptor.getX().getType());
  return checkAxis(loc, tensorType(adaptor.getX()), adaptor.getAxis());
}
MPT_INFER(LogSoftmaxBackwardOp) {
  types.push_back(adaptor.getDy().getType());
  if (tensorType(adaptor.getY()).getShape() != tensorType(adaptor.getDy()).getShape())
    return emitOptionalError(loc, "expected y of dy's shape, got ", adaptor.getY().getType());
  return checkAxis(loc, tensorType(adaptor.getDy()), adaptor.getAxis());
}

MPT_SAME_SHAPES(BatchNormOp)
MPT_SAME_SHAPES(BatchNormBackwardOp)
MPT_SAME_SHAPES(LayerNormOp)
MPT_SAME_SHAPES(LayerNormBackwardOp)
MPT_SAME_SHAPES(RMSNormOp)
MPT_SAME_SHAPES(RMSNormBackwardOp)
MPT_SAME_SHAPES(GroupNormOp)
MPT_SAME_SHAPES(GroupNormBackwardOp)
MPT_SAME_SHAPES(SoftmaxOp)
MPT_SAME_SHAPES(SoftmaxBackwardOp)
MPT_SAME_SHAPES(LogSoftmaxOp)
MPT_SAME_SHAPES(LogSoftmaxBackwardOp)
