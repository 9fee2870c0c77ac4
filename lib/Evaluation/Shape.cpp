// SPDX-License-Identifier: Apache-2.0
// Shape family: constants and strided data movement.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

/// y[i...] = x[base + sum of i stride].
Tensor strided(const Tensor &x, RankedTensorType type, ArrayRef<int64_t> strides, int64_t base = 0) {
  Tensor y(type);
  withElements(x, y, [&](auto in, auto out) {
    forEachStrided(type.getShape(), strides, base, [&](int64_t to, int64_t from) { out[to] = in[from]; });
  });
  return y;
}

LogicalResult interpretConstant(ConstantOp op, InterpreterFrame &frame) {
  FailureOr<Tensor> value = Tensor::fromAttribute(op.getValue(), op.getLoc());
  if (failed(value))
    return failure();
  frame.set(op.getY(), std::move(*value));
  return success();
}

LogicalResult interpretReshape(ReshapeOp op, InterpreterFrame &frame) {
  frame.set(op.getY(), frame.get(op.getX()).as(tensorType(op.getY())));
  return success();
}

LogicalResult interpretTranspose(TransposeOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  SmallVector<int64_t> from = rowMajorStrides(x.shape()), strides;
  for (int64_t dim : op.getPermutation())
    strides.push_back(from[dim]);
  frame.set(op.getY(), strided(x, tensorType(op.getY()), strides));
  return success();
}

LogicalResult interpretBroadcast(BroadcastOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  RankedTensorType type = tensorType(op.getY());
  SmallVector<int64_t> from = rowMajorStrides(x.shape()), strides(type.getRank(), 0);
  for (auto [i, dim] : llvm::enumerate(op.getDims()))
    strides[dim] = x.shape()[i] == 1 ? 0 : from[i];
  frame.set(op.getY(), strided(x, type, strides));
  return success();
}

LogicalResult interpretSlice(SliceOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  SmallVector<int64_t> strides = rowMajorStrides(x.shape());
  int64_t base = 0;
  for (auto [i, stride] : llvm::enumerate(strides)) {
    base += op.getStarts()[i] * stride;
    stride *= op.getStrides()[i];
  }
  frame.set(op.getY(), strided(x, tensorType(op.getY()), strides, base));
  return success();
}

LogicalResult interpretReverse(ReverseOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  SmallVector<int64_t> strides = rowMajorStrides(x.shape());
  int64_t base = 0;
  for (int64_t axis : op.getAxes()) {
    base += (x.shape()[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
  }
  frame.set(op.getY(), strided(x, tensorType(op.getY()), strides, base));
  return success();
}

LogicalResult interpretConcat(ConcatOp op, InterpreterFrame &frame) {
  Tensor y = frame.zeros(op.getY());
  SmallVector<int64_t> strides = rowMajorStrides(y.shape());
  int64_t base = 0;
  for (Value input : op.getInputs()) {
    const Tensor &x = frame.get(input);
    withElements(x, y, [&](auto in, auto out) {
      forEachStrided(x.shape(), strides, base, [&](int64_t from, int64_t to) { out[to] = in[from]; });
    });
    base += x.shape()[op.getAxis()] * strides[op.getAxis()];
  }
  frame.set(op.getY(), std::move(y));
  return success();
}

LogicalResult interpretPad(PadOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  double value = op.getValue().convertToDouble();
  withElements(x, y, [&](auto in, auto out) {
    std::fill(out.begin(), out.end(), static_cast<std::decay_t<decltype(out[0])>>(value));
    SmallVector<int64_t> from = rowMajorStrides(x.shape()), to = rowMajorStrides(y.shape());
    for (int64_t i = 0; i < x.size(); ++i) {
      int64_t position = 0;
      bool inside = true;
      for (int64_t d = 0, rest = i; d < x.rank(); rest %= from[d], ++d) {
        int64_t at = op.getLow()[d] + rest / from[d] * (op.getInterior()[d] + 1);
        inside &= at >= 0 && at < y.shape()[d];
        position += at * to[d];
      }
      if (inside)
        out[position] = in[i];
    }
  });
  frame.set(op.getY(), std::move(y));
  return success();
}

LogicalResult interpretIota(IotaOp op, InterpreterFrame &frame) {
  Tensor y = frame.zeros(op.getY());
  int64_t axis = op.getAxis();
  if (axis < 0 || axis >= y.rank())
    return op.emitOpError() << "expected an axis below " << y.rank() << ", got " << axis;
  SmallVector<int64_t> strides(y.rank(), 0);
  strides[axis] = 1;
  forEachStrided(y.shape(), strides, 0,
                 [&](int64_t to, int64_t value) { y.setNumber(to, static_cast<double>(value)); });
  frame.set(op.getY(), std::move(y));
  return success();
}

} // namespace

void mpt::attachShapeRules(MLIRContext *context) {
  attachRule<ConstantOp, interpretConstant>(context);
  attachRule<ReshapeOp, interpretReshape, AccessPattern::Moves>(context);
  attachRule<TransposeOp, interpretTranspose, AccessPattern::Moves>(context);
  attachRule<BroadcastOp, interpretBroadcast, AccessPattern::Moves>(context);
  attachRule<SliceOp, interpretSlice, AccessPattern::Moves>(context);
  attachRule<ReverseOp, interpretReverse, AccessPattern::Moves>(context);
  attachRule<ConcatOp, interpretConcat>(context);
  attachRule<PadOp, interpretPad>(context);
  attachRule<IotaOp, interpretIota>(context);
}
