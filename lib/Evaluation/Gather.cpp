// SPDX-License-Identifier: Apache-2.0
// Shape family, indexed movement: gathers, and scatters that combine.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

/// `index` counted from the end when negative; fails at `op` when out of range.
FailureOr<int64_t> wrapIndex(Operation *op, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    return op->emitOpError() << "expected indices from " << -extent << " to " << extent - 1 << ", got " << index;
  return index < 0 ? index + extent : index;
}

/// Positions in `shape` that each element of `indices` leads to: of whole slices (gather) or of single elements.
/// Element positions and slice starts are in row-major order of the result they belong to.
using Positions = FailureOr<std::vector<int64_t>>;

/// Positions for gather along `axis`: one an element of the gathered result.
Positions slicePositions(Operation *op, ArrayRef<int64_t> shape, const Tensor &indices, int64_t axis) {
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

/// Positions for the element-wise forms: the index's own position with `axis` replaced.
Positions elementPositions(Operation *op, ArrayRef<int64_t> shape, const Tensor &indices, int64_t axis) {
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

/// Positions for the tuple forms: `batch` shared leading dimensions, then the tuple, then whole slices.
Positions tuplePositions(Operation *op, ArrayRef<int64_t> shape, const Tensor &indices, int64_t batch) {
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

LogicalResult pick(InterpreterFrame &frame, Value x, Value y, const Positions &positions) {
  if (failed(positions))
    return failure();
  Tensor result = frame.zeros(y);
  withElements(frame.get(x), result, [&](auto in, auto out) {
    for (auto [to, from] : llvm::zip_equal(out, *positions))
      to = in[from];
  });
  frame.set(y, std::move(result));
  return success();
}

/// Combines updates into `data` in row-major order of the updates; float sums and products round to the accumulator.
LogicalResult combine(InterpreterFrame &frame, Tensor data, Value updates, Value y, ScatterKind kind,
                      const Positions &positions) {
  if (failed(positions))
    return failure();
  const Tensor &source = frame.get(updates);
  auto merge = [&](auto in, auto out, auto round) {
    for (auto [value, at] : llvm::zip_equal(in, *positions)) {
      auto &old = out[at];
      switch (kind) {
      case ScatterKind::assign:
        old = value;
        break;
      case ScatterKind::add:
        old = round(old + value);
        break;
      case ScatterKind::mul:
        old = round(old * value);
        break;
      case ScatterKind::min:
        old = old != old || old < value ? old : value;
        break;
      case ScatterKind::max:
        old = old != old || old > value ? old : value;
        break;
      }
    }
  };
  if (data.isFloat())
    withRounding(frame.accumulatorType(data.getElementType()),
                 [&](auto round) { merge(source.reals(), data.writeReals(), round); });
  else
    merge(source.ints(), data.writeInts(), [](int64_t value) { return value; });
  frame.set(y, std::move(data));
  return success();
}

LogicalResult interpretGather(GatherOp op, InterpreterFrame &frame) {
  return pick(frame, op.getX(), op.getY(),
              slicePositions(op, tensorType(op.getX()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretScatterAdd(ScatterAddOp op, InterpreterFrame &frame) {
  return combine(frame, frame.zeros(op.getY()), op.getUpdates(), op.getY(), ScatterKind::add,
                 slicePositions(op, tensorType(op.getY()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretGatherElements(GatherElementsOp op, InterpreterFrame &frame) {
  return pick(frame, op.getX(), op.getY(),
              elementPositions(op, tensorType(op.getX()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretScatterElements(ScatterElementsOp op, InterpreterFrame &frame) {
  return combine(frame, frame.get(op.getData()), op.getUpdates(), op.getY(), op.getKind(),
                 elementPositions(op, tensorType(op.getData()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretGatherND(GatherNDOp op, InterpreterFrame &frame) {
  return pick(frame, op.getX(), op.getY(),
              tuplePositions(op, tensorType(op.getX()).getShape(), frame.get(op.getIndices()), op.getBatchDims()));
}

LogicalResult interpretScatterND(ScatterNDOp op, InterpreterFrame &frame) {
  return combine(
      frame, frame.get(op.getData()), op.getUpdates(), op.getY(), op.getKind(),
      tuplePositions(op, tensorType(op.getData()).getShape(), frame.get(op.getIndices()), op.getBatchDims()));
}

} // namespace

void mpt::attachGatherRules(MLIRContext *context) {
  attachRule<GatherOp, interpretGather>(context);
  attachRule<ScatterAddOp, interpretScatterAdd>(context);
  attachRule<GatherElementsOp, interpretGatherElements>(context);
  attachRule<ScatterElementsOp, interpretScatterElements>(context);
  attachRule<GatherNDOp, interpretGatherND>(context);
  attachRule<ScatterNDOp, interpretScatterND>(context);
}
