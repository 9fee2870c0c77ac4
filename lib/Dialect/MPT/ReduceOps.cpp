// SPDX-License-Identifier: Apache-2.0
// Types of the reduce family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(ReduceOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t previous = -1;
  for (int64_t axis : adaptor.getAxes()) {
    if (axis <= previous || axis >= x.getRank())
      return emitOptionalError(loc, "C1: expected ascending axes below ", x.getRank(), ", got ", axis);
    previous = axis;
  }
  SmallVector<int64_t> shape;
  for (int64_t axis : otherAxes(x.getRank(), adaptor.getAxes()))
    shape.push_back(x.getDimSize(axis));
  types.push_back(x.clone(shape));
  return success();
}
MPT_SAME_SHAPES(ReduceOp)

MPT_INFER(ArgReduceOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t axis = adaptor.getAxis();
  if (axis < 0 || axis >= x.getRank())
    return emitOptionalError(loc, "expected an axis below ", x.getRank(), ", got ", axis);
  SmallVector<int64_t> shape(x.getShape());
  shape.erase(shape.begin() + axis);
  if (x.getDimSize(axis) == 0 && ShapedType::getNumElements(shape) > 0)
    return emitOptionalError(loc, "expected elements along axis ", axis, ", got ", x);
  types.push_back(RankedTensorType::get(shape, IntegerType::get(context, 64)));
  return success();
}

MPT_INFER(CumSumOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  if (static_cast<int64_t>(adaptor.getAxis()) < 0 || static_cast<int64_t>(adaptor.getAxis()) >= x.getRank())
    return emitOptionalError(loc, "expected an axis below ", x.getRank(), ", got ", adaptor.getAxis());
  types.push_back(x);
  return success();
}
