// SPDX-License-Identifier: Apache-2.0
// Positions that indices lead to, negative ones counted from the end.
#include "Positions.h"

using namespace mlir;
using namespace mpt;

/// `index` counted from the end when negative; fails at `op` when out of range.
static FailureOr<int64_t> wrapIndex(Operation *op, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    return op->emitOpError() << "expected indices from " << -extent << " to " << extent - 1 << ", got " << index;
  return index < 0 ? index + extent : index;
}

Positions mpt::slicePositions(Operation *op, ArrayRef<int64_t> shape, const Tensor &indices, int64_t axis) {
  int64_t inner = 1, outer = 1, extent = shape[axis];
  for (int64_t d : shape.drop_front(axis + 1))
    inner *= d;
  for (int64_t d : shape.take_front(axis))
    outer *= d;
  std::vector<int64_t> result;
  result.reserve(outer * indices.size() * inner);
  for (int64_t a = 0; a < outer; ++a)
    for (int64_t index : indices.ints()) {
      FailureOr<int64_t> i = wrapIndex(op, index, extent);
      if (failed(i))
        return failure();
      for (int64_t b = 0; b < inner; ++b)
        result.push_back((a * extent + *i) * inner + b);
    }
  return result;
}

Positions mpt::elementPositions(Operation *op, ArrayRef<int64_t> shape, const Tensor &indices, int64_t axis) {
  SmallVector<int64_t> strides = rowMajorStrides(shape);
  int64_t stride = strides[axis];
  strides[axis] = 0;
  std::vector<int64_t> result(indices.size());
  bool ok = true;
  forEachStrided(indices.shape(), strides, 0, [&](int64_t linear, int64_t position) {
    FailureOr<int64_t> i = ok ? wrapIndex(op, indices.ints()[linear], shape[axis]) : FailureOr<int64_t>(0);
    ok &= succeeded(i);
    result[linear] = position + (ok ? *i : 0) * stride;
  });
  if (!ok)
    return failure();
  return result;
}

Positions mpt::tuplePositions(Operation *op, ArrayRef<int64_t> shape, const Tensor &indices, int64_t batch) {
  SmallVector<int64_t> strides = rowMajorStrides(shape);
  int64_t width = indices.shape().back(), inner = 1, perBatch = 1;
  for (int64_t d : shape.drop_front(batch + width))
    inner *= d;
  for (int64_t d : indices.shape().drop_front(batch).drop_back())
    perBatch *= d;
  int64_t batchStride = batch ? strides[batch - 1] : 0;
  std::vector<int64_t> result;
  int64_t tuples = width ? indices.size() / width : perBatch;
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t position = t / perBatch * batchStride;
    for (int64_t d = 0; d < width; ++d) {
      FailureOr<int64_t> i = wrapIndex(op, indices.ints()[t * width + d], shape[batch + d]);
      if (failed(i))
        return failure();
      position += *i * strides[batch + d];
    }
    for (int64_t b = 0; b < inner; ++b)
      result.push_back(position + b);
  }
  return result;
}
