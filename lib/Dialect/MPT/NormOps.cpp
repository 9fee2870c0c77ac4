// SPDX-License-Identifier: Apache-2.0
// Types of the norm family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

static LogicalResult checkExtents(std::optional<Location> loc, StringRef what, Value value, ArrayRef<int64_t> shape) {
  if (tensorType(value).getShape() != shape)
    return emitOptionalError(loc, "C1: expected ", what, " of ", shape.size(), " dimensions matching x, got ",
                             value.getType());
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
  types.append({adaptor.getX().getType(), adaptor.getScale().getType(), adaptor.getScale().getType()});
  return success();
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
  types.append({adaptor.getX().getType(), adaptor.getScale().getType(), adaptor.getScale().getType()});
  return success();
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
  types.append({adaptor.getX().getType(), adaptor.getScale().getType()});
  return success();
}
MPT_INFER(GroupNormOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t groups = adaptor.getGroups();
  if (x.getRank() < 2 || groups < 1 || x.getDimSize(1) % groups != 0)
    return emitOptionalError(loc, "C1: expected channels divisible by ", groups, " groups, got ", x);
  RankedTensorType statistics = wideTensor(x, {x.getDimSize(0), groups});
  types.append({x, statistics, statistics});
  return success();
}
MPT_INFER(GroupNormBackwardOp) {
  types.append({adaptor.getX().getType(), adaptor.getScale().getType(), adaptor.getScale().getType()});
  return success();
}
MPT_INFER(SoftmaxOp) {
  types.push_back(adaptor.getX().getType());
  return checkAxis(loc, tensorType(adaptor.getX()), adaptor.getAxis());
}
MPT_INFER(SoftmaxBackwardOp) {
  types.push_back(adaptor.getDy().getType());
  return checkAxis(loc, tensorType(adaptor.getDy()), adaptor.getAxis());
}
MPT_INFER(LogSoftmaxOp) {
  types.push_back(adaptor.getX().getType());
  return checkAxis(loc, tensorType(adaptor.getX()), adaptor.getAxis());
}
MPT_INFER(LogSoftmaxBackwardOp) {
  types.push_back(adaptor.getDy().getType());
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
