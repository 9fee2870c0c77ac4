// SPDX-License-Identifier: Apache-2.0
// Attention: operands and results as they lie, as long as the depth is contiguous.
#include "Bufferizer.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

/// `tensor`'s buffer, or a dense copy where its last dimension has gaps.
FailureOr<Value> Bufferizer::withUnitDepth(Location loc, Value tensor) {
  Value memref = buffer(tensor);
  MemRefType type = typeOf(memref);
  bool unit = stridesOf(type).back() == 1 || type.getShape().back() == 1;
  return unit ? memref : dense(loc, memref, rowMajor(type.getRank()));
}

/// Where a result of an attention goes.
Value Bufferizer::attentionResult(Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  Value memref = targetFor(tensor).memref;
  if (!memref || stridesOf(typeOf(memref)).back() != 1) {
    Order order = orders.of(tensor);
    if (order.back() != type.getRank() - 1)
      order = rowMajor(type.getRank());
    memref = allocate(tensor.getLoc(), denseType(type, order));
  }
  return buffers[tensor] = memref;
}

/// A bias as [batch, heads, queries, keys], with strides of 0 where it repeats.
Value Bufferizer::attentionBias(Location loc, Value bias, Value q, Value k) {
  if (!bias)
    return {};
  Value memref = buffer(bias);
  ArrayRef<int64_t> queries = typeOf(q).getShape();
  Sizes shape{queries[0], queries[1], queries[2], typeOf(k).getDimSize(2)}, strides = stridesOf(typeOf(memref));
  for (auto [extent, given, stride] : llvm::zip_equal(shape, typeOf(memref).getShape(), strides))
    if (given != extent || extent == 1)
      stride = 0;
  return view(loc, memref, shape, strides);
}

LogicalResult Bufferizer::lowerAttend(rt::AttendOp op) {
  Location loc = op.getLoc();
  Value operands[3];
  for (auto [memref, tensor] : llvm::zip_equal(operands, op->getOperands().take_front(3))) {
    FailureOr<Value> found = withUnitDepth(loc, tensor);
    if (failed(found))
      return failure();
    memref = *found;
  }
  auto [q, k, v] = operands;
  Value bias = attentionBias(loc, op.getBias(), q, k), o = attentionResult(op.getO());
  Value stats = allocate(loc, denseType(cast<RankedTensorType>(op.getStats().getType()), rowMajor(3)));
  buffers[op.getStats()] = stats;
  rt::AttentionOp::create(builder, loc, q, k, v, bias, o, stats, op.getScale(), op.getCausal());
  return success();
}

LogicalResult Bufferizer::lowerAttendGradient(rt::AttendGradientOp op) {
  Location loc = op.getLoc();
  Value operands[5], tensors[5] = {op.getQ(), op.getK(), op.getV(), op.getO(), op.getDO()};
  for (auto [memref, tensor] : llvm::zip_equal(operands, tensors)) {
    FailureOr<Value> found = withUnitDepth(loc, tensor);
    if (failed(found))
      return failure();
    memref = *found;
  }
  auto [q, k, v, o, dO] = operands;
  FailureOr<Value> stats = dense(loc, buffer(op.getStats()), rowMajor(3));
  if (failed(stats))
    return failure();
  Value bias = attentionBias(loc, op.getBias(), q, k);
  Value dq = attentionResult(op.getDq()), dk = attentionResult(op.getDk()), dv = attentionResult(op.getDv());
  rt::AttentionGradientOp::create(builder, loc, q, k, v, bias, o, *stats, dO, dq, dk, dv, op.getScale(),
                                  op.getCausal());
  return success();
}
