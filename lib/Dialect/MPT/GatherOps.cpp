// SPDX-License-Identifier: Apache-2.0
// Types of gathers.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

/// x's shape with dimension `axis` replaced by `indices`' dimensions.
MPT_INFER(GatherOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  int64_t axis = adaptor.getAxis();
  if (axis < 0 || axis >= x.getRank())
    return emitOptionalError(loc, "expected an axis below ", x.getRank(), ", got ", axis);
  SmallVector<int64_t> shape(x.getShape().take_front(axis));
  llvm::append_range(shape, tensorType(adaptor.getIndices()).getShape());
  llvm::append_range(shape, x.getShape().drop_front(axis + 1));
  types.push_back(x.clone(shape));
  return success();
}

MPT_INFER(GatherElementsOp) {
  RankedTensorType x = tensorType(adaptor.getX()), indices = tensorType(adaptor.getIndices());
  if (!canIndexElements(x.getShape(), indices.getShape(), adaptor.getAxis()))
    return emitOptionalError(loc, "expected indices into ", x, " along axis ", adaptor.getAxis(), ", got ", indices);
  types.push_back(x.clone(indices.getShape()));
  return success();
}

LogicalResult BucketizeOp::verify() {
  RankedTensorType x = tensorType(getX()), y = tensorType(getY()), boundaries = tensorType(getBoundaries());
  if (x.getShape() != y.getShape())
    return emitOpError() << "C1: expected the result shape of " << x << ", got " << y;
  if (boundaries.getRank() != 1 || !llvm::isPowerOf2_64(boundaries.getNumElements() + 1))
    return emitOpError() << "C2: expected a vector of 1, 3, 7, 15 or so on boundaries, got " << boundaries;
  return success();
}

MPT_INFER(GatherNDOp) {
  RankedTensorType x = tensorType(adaptor.getX()), indices = tensorType(adaptor.getIndices());
  int64_t batch = adaptor.getBatchDims();
  if (!canIndexTuples(x.getShape(), indices.getShape(), batch))
    return emitOptionalError(loc, "expected index tuples into ", x, ", got ", indices);
  SmallVector<int64_t> shape(indices.getShape().drop_back());
  llvm::append_range(shape, x.getShape().drop_front(batch + indices.getShape().back()));
  types.push_back(x.clone(shape));
  return success();
}
