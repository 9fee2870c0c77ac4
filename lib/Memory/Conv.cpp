// SPDX-License-Identifier: Apache-2.0
// Convolutions on buffers: data channels-last, filters as the target's library wants them.
#include "Models.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// A convolution of any kind: its three tensors, one of which it makes, and the sums and the norm of its call.
struct Convolution {
  rt::ConvKind kind;
  Value x, w, y;
  ValueRange sums, norm;
};

Convolution describe(ConvOp op) { return {rt::ConvKind::forward, op.getX(), op.getW(), op.getY(), {}, {}}; }
Convolution describe(ConvBackwardDataOp op) {
  return {rt::ConvKind::backward_data, op.getY(), op.getW(), op.getDy(), {}, {}};
}
Convolution describe(ConvBackwardWeightsOp op) {
  return {rt::ConvKind::backward_weights, op.getX(), op.getY(), op.getDy(), {}, {}};
}
Convolution describe(library::ConvOp op) {
  return {rt::ConvKind::forward, op.getX(), op.getW(), op.getY(), op.getSums(), {}};
}
Convolution describe(library::ConvBackwardDataOp op) {
  return {rt::ConvKind::backward_data, op.getDx(), op.getW(), op.getDy(), op.getSums(), op.getNorm()};
}

/// The order of a convolution's tensor: filters are row-major for a processor's library.
Order orderOf(const Convolution &conv, Value tensor, const BufferizationState &state) {
  int64_t rank = tensorType(tensor).getRank();
  return tensor == conv.w && state.policy.filters == BufferizationPolicy::Filters::RowMajor ? rowMajor(rank)
                                                                                            : channelsLast(rank);
}

/// An operand, dense in `order`.
FailureOr<Value> operandBuffer(const Convolution &conv, Value tensor, const Order &order, Location loc,
                               BufferizationState &state) {
  Value given = state.buffer(tensor);
  if (state.policy.float8 != BufferizationPolicy::Float8::Every && bufferTypeOf(given).getElementTypeBitWidth() == 8)
    return emitError(loc) << "expected operands of 16 bits or more for a convolution's call, got "
                          << bufferTypeOf(given).getElementType() << ": run fusion-widen-operands";
  FailureOr<Value> found = state.dense(loc, given, order);
  // An input that had to be rearranged is read in its new layout from here on; filters that are data to the library are
  // small.
  bool isFilter = state.policy.filters == BufferizationPolicy::Filters::ChannelsLast && tensor == conv.w &&
                  tensor.getDefiningOp<train::ReadOp>();
  if (succeeded(found) && (isa<BlockArgument>(tensor) || isFilter))
    state.setBuffer(tensor, *found);
  return found;
}

/// Parts of a norm, vectors dense and its input channels-last.
FailureOr<SmallVector<Value>> normBuffers(const Convolution &conv, Location loc, BufferizationState &state) {
  SmallVector<Value> buffers;
  for (Value part : conv.norm) {
    int64_t rank = tensorType(part).getRank();
    FailureOr<Value> found = state.dense(loc, state.buffer(part), rank == 1 ? rowMajor(1) : channelsLast(rank));
    if (failed(found))
      return failure();
    buffers.push_back(*found);
  }
  return buffers;
}

/// One buffer for the sums, of which each is a row.
Value sumsBuffer(const Convolution &conv, Location loc, BufferizationState &state) {
  if (conv.sums.empty())
    return {};
  int64_t channels = tensorType(conv.sums.front()).getDimSize(0);
  Value buffer = state.allocate(loc, MemRefType::get({2, channels}, state.builder.getF32Type()));
  for (auto [i, sum] : llvm::enumerate(conv.sums))
    state.setBuffer(sum, state.view(loc, buffer, {channels}, {1}, static_cast<int64_t>(i) * channels));
  return buffer;
}

template <typename Op> struct ConvBufferization : Bufferizable::ExternalModel<ConvBufferization<Op>, Op> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }

  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto source = cast<Op>(op);
    Location loc = op->getLoc();
    Convolution conv = describe(source);
    SmallVector<Value> memrefs;
    for (Value tensor : {conv.x, conv.w, conv.y}) {
      Order order = orderOf(conv, tensor, state);
      FailureOr<Value> memref = tensor.getDefiningOp() == op ? state.denseResult(tensor, order)
                                                             : operandBuffer(conv, tensor, order, loc, state);
      if (failed(memref))
        return failure();
      memrefs.push_back(*memref);
    }
    FailureOr<SmallVector<Value>> norm = normBuffers(conv, loc, state);
    if (failed(norm))
      return failure();
    Value sums = sumsBuffer(conv, loc, state);
    auto call = rt::ConvOp::create(state.builder, loc, conv.kind, memrefs[0], memrefs[1], memrefs[2], Value(), sums,
                                   *norm, source.getStrides(), source.getDilations(), source.getPadsLow(),
                                   source.getPadsHigh(), source.getGroups());
    addWorkspace(call, state);
    return success();
  }

private:
  /// Scratch that the library needs, unless it brings its own.
  static void addWorkspace(rt::ConvOp call, BufferizationState &state) {
    using Workspace = BufferizationPolicy::Workspace;
    const Workspace from = state.policy.workspace;
    int64_t bytes = rt::describe(call, from == Workspace::PlanButBf16).workspace_bytes;
    if (from == Workspace::Library || bytes == 0)
      return;
    OpBuilder::InsertionGuard guard(state.builder);
    state.builder.setInsertionPoint(call);
    call.getWorkspaceMutable().assign(
        state.allocate(call.getLoc(), MemRefType::get({bytes}, state.builder.getI8Type())));
  }
};

} // namespace

void mpt::memory::attachConvModels(MLIRContext *context) {
  ConvOp::attachInterface<ConvBufferization<ConvOp>>(*context);
  ConvBackwardDataOp::attachInterface<ConvBufferization<ConvBackwardDataOp>>(*context);
  ConvBackwardWeightsOp::attachInterface<ConvBufferization<ConvBackwardWeightsOp>>(*context);
}
void mpt::memory::attachLibraryConvModels(MLIRContext *context) {
  library::ConvOp::attachInterface<ConvBufferization<library::ConvOp>>(*context);
  library::ConvBackwardDataOp::attachInterface<ConvBufferization<library::ConvBackwardDataOp>>(*context);
}
