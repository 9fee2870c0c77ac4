// SPDX-License-Identifier: Apache-2.0
// Attention on buffers: operands and results as they lie, as long as the depth is contiguous.
#include "Models.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// Buffers of `tensors`, or dense copies of those whose last dimension has gaps.
FailureOr<SmallVector<Value>> withUnitDepth(Location loc, ArrayRef<Value> tensors, BufferizationState &state) {
  SmallVector<Value> memrefs;
  for (Value tensor : tensors) {
    FailureOr<Value> memref = state.buffer(tensor);
    MemRefType type = bufferTypeOf(*memref);
    if (stridesOf(type).back() != 1 && type.getShape().back() != 1)
      memref = state.dense(loc, *memref, rowMajor(type.getRank()));
    if (failed(memref))
      return failure();
    memrefs.push_back(*memref);
  }
  return memrefs;
}

/// Where a result goes: its place if the depth is contiguous there, else a buffer of its own in its layout.
Value resultBuffer(Value tensor, BufferizationState &state) {
  Value memref = state.placeFor(tensor).memref;
  if (!memref || stridesOf(bufferTypeOf(memref)).back() != 1) {
    Order order = layoutOf(tensor);
    if (order.back() != static_cast<int64_t>(order.size()) - 1)
      order = rowMajor(order.size());
    memref = state.allocate(tensor.getLoc(), state.ownType(tensor, order));
  }
  state.setBuffer(tensor, memref);
  return memref;
}

/// A bias as [batch, heads, queries, keys], with strides of 0 where it repeats.
Value biasBuffer(Location loc, Value bias, Value q, Value k, BufferizationState &state) {
  if (!bias)
    return {};
  Value memref = state.buffer(bias);
  ArrayRef<int64_t> queries = bufferTypeOf(q).getShape();
  Sizes shape{queries[0], queries[1], queries[2], bufferTypeOf(k).getDimSize(2)};
  Sizes strides = stridesOf(bufferTypeOf(memref));
  for (auto [extent, given, stride] : llvm::zip_equal(shape, bufferTypeOf(memref).getShape(), strides))
    if (given != extent || extent == 1)
      stride = 0;
  return state.view(loc, memref, shape, strides);
}

struct AttentionBufferization : Bufferizable::ExternalModel<AttentionBufferization, library::AttentionOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto attention = cast<library::AttentionOp>(op);
    Location loc = op->getLoc();
    auto operands = withUnitDepth(loc, {attention.getQ(), attention.getK(), attention.getV()}, state);
    if (failed(operands))
      return failure();
    Value q = (*operands)[0], k = (*operands)[1], v = (*operands)[2];
    Value bias = biasBuffer(loc, attention.getBias(), q, k, state), o = resultBuffer(attention.getO(), state);
    Value stats = state.allocate(loc, state.ownType(attention.getStats(), rowMajor(3)));
    state.setBuffer(attention.getStats(), stats);
    rt::AttentionOp::create(state.builder, loc, q, k, v, bias, o, stats, attention.getScale(), attention.getCausal());
    return success();
  }
};

struct AttentionGradientBufferization
    : Bufferizable::ExternalModel<AttentionGradientBufferization, library::AttentionGradientOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto attention = cast<library::AttentionGradientOp>(op);
    Location loc = op->getLoc();
    auto operands = withUnitDepth(
        loc, {attention.getQ(), attention.getK(), attention.getV(), attention.getO(), attention.getDO()}, state);
    if (failed(operands))
      return failure();
    Value q = (*operands)[0], k = (*operands)[1], v = (*operands)[2], o = (*operands)[3], dO = (*operands)[4];
    FailureOr<Value> stats = state.dense(loc, state.buffer(attention.getStats()), rowMajor(3));
    if (failed(stats))
      return failure();
    Value bias = biasBuffer(loc, attention.getBias(), q, k, state);
    Value dq = resultBuffer(attention.getDq(), state), dk = resultBuffer(attention.getDk(), state);
    Value dv = resultBuffer(attention.getDv(), state);
    rt::AttentionGradientOp::create(state.builder, loc, q, k, v, bias, o, *stats, dO, dq, dk, dv, attention.getScale(),
                                    attention.getCausal());
    return success();
  }
};

} // namespace

void mpt::memory::attachAttentionModels(MLIRContext *context) {
  library::AttentionOp::attachInterface<AttentionBufferization>(*context);
  library::AttentionGradientOp::attachInterface<AttentionGradientBufferization>(*context);
}
