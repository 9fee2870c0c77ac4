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

/// Whether calls take a buffer as it lies: without gaps in the last dimension and, where the kernels of the library
/// serve, with rows that begin at whole vectors.
class Rows {
public:
  template <typename Op>
  Rows(Op op, BufferizationState &state)
      : state(state),
        areVectors(op.getKey() || tensorType(op.getQ()).getDimSize(1) != tensorType(op.getK()).getDimSize(1)) {}
  bool fit(Value memref) const {
    MemRefType type = bufferTypeOf(memref);
    Sizes strides = stridesOf(type);
    if (strides.back() != 1 && type.getShape().back() != 1)
      return false;
    const int64_t vector = state.policy.alignment, unit = vector / elementBytes(type.getElementType());
    if (!areVectors || unit <= 1)
      return true;
    return state.alignmentOf(memref) == vector &&
           llvm::all_of(llvm::zip_equal(ArrayRef(strides).drop_back(), type.getShape().drop_back()), [&](auto pair) {
             auto [stride, extent] = pair;
             return extent == 1 || stride % unit == 0;
           });
  }
  /// Buffers of `tensors`, or dense copies of the ones that do not fit.
  SmallVector<Value> buffersOf(Location loc, ArrayRef<Value> tensors) const {
    SmallVector<Value> memrefs;
    for (Value tensor : tensors) {
      Value memref = state.buffer(tensor);
      MemRefType type = bufferTypeOf(memref);
      Order order = rowMajor(type.getRank());
      if (!fit(memref))
        memref = state.dense(loc, memref, order);
      // Dense, but where a view of something else begins.
      if (!fit(memref)) {
        Value copy = state.allocate(
            loc, bufferType(type.getShape(), type.getElementType(), denseStrides(type.getShape(), order)));
        state.copy(loc, memref, copy);
        memref = copy;
      }
      memrefs.push_back(memref);
    }
    return memrefs;
  }
  /// Where a result goes: its place if it fits, else a buffer of its own in its layout.
  Value resultOf(Value tensor) const {
    Value memref = state.placeFor(tensor);
    if (!memref || stridesOf(bufferTypeOf(memref)).back() != 1 || !fit(memref)) {
      Order order = layoutOf(tensor);
      if (order.back() != static_cast<int64_t>(order.size()) - 1)
        order = rowMajor(order.size());
      memref = state.allocate(tensor.getLoc(), state.ownType(tensor, order));
    }
    state.setBuffer(tensor, memref);
    return memref;
  }

private:
  BufferizationState &state;
  const bool areVectors;
};

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

/// Seed and step side by side, or nothing where there is no dropout.
Value keyBuffer(Location loc, Value key, BufferizationState &state) {
  return key ? state.dense(loc, state.buffer(key), rowMajor(1)) : Value();
}

struct AttentionBufferization : Bufferizable::ExternalModel<AttentionBufferization, library::AttentionOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto attention = cast<library::AttentionOp>(op);
    Location loc = op->getLoc();
    Rows rows(attention, state);
    auto operands = rows.buffersOf(loc, {attention.getQ(), attention.getK(), attention.getV()});
    Value key = keyBuffer(loc, attention.getKey(), state);
    Value q = operands[0], k = operands[1], v = operands[2];
    Value bias = biasBuffer(loc, attention.getBias(), q, k, state), o = rows.resultOf(attention.getO());
    Value stats = state.allocate(loc, state.ownType(attention.getStats(), rowMajor(3)));
    state.setBuffer(attention.getStats(), stats);
    rt::AttentionOp::create(state.builder, loc, q, k, v, bias, key, o, stats, attention.getScale(),
                            attention.getCausal(), attention.getRatio(), attention.getStream());
    return success();
  }
};

struct AttentionGradientBufferization
    : Bufferizable::ExternalModel<AttentionGradientBufferization, library::AttentionGradientOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto attention = cast<library::AttentionGradientOp>(op);
    Location loc = op->getLoc();
    Rows rows(attention, state);
    auto operands = rows.buffersOf(
        loc, {attention.getQ(), attention.getK(), attention.getV(), attention.getO(), attention.getDO()});
    Value key = keyBuffer(loc, attention.getKey(), state);
    Value q = operands[0], k = operands[1], v = operands[2], o = operands[3], dO = operands[4];
    Value stats = state.dense(loc, state.buffer(attention.getStats()), rowMajor(3));
    Value bias = biasBuffer(loc, attention.getBias(), q, k, state);
    Value dq = rows.resultOf(attention.getDq()), dk = rows.resultOf(attention.getDk());
    Value dv = rows.resultOf(attention.getDv());
    rt::AttentionGradientOp::create(state.builder, loc, q, k, v, bias, key, o, stats, dO, dq, dk, dv,
                                    attention.getScale(), attention.getCausal(), attention.getRatio(),
                                    attention.getStream());
    return success();
  }
};

} // namespace

void mpt::memory::attachAttentionModels(MLIRContext *context) {
  library::AttentionOp::attachInterface<AttentionBufferization>(*context);
  library::AttentionGradientOp::attachInterface<AttentionGradientBufferization>(*context);
}
