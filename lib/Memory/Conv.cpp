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

rt::ConvKind kindOf(library::ConvOp conv) {
  switch (conv.getKind()) {
  case library::ConvKind::forward:
    return rt::ConvKind::forward;
  case library::ConvKind::backward_data:
    return rt::ConvKind::backward_data;
  case library::ConvKind::backward_weights:
    return rt::ConvKind::backward_weights;
  }
  llvm_unreachable("unknown kind");
}

/// The order of a convolution's tensor: filters are row-major for a processor's library.
Order orderOf(library::ConvOp conv, Value tensor, const BufferizationState &state) {
  int64_t rank = tensorType(tensor).getRank();
  return tensor == conv.getW() && state.policy.filters == BufferizationPolicy::Filters::RowMajor ? rowMajor(rank)
                                                                                                 : channelsLast(rank);
}

/// An operand, dense in `order`.
FailureOr<Value> operandBuffer(library::ConvOp conv, Value tensor, const Order &order, Location loc,
                               BufferizationState &state) {
  Value given = state.buffer(tensor);
  if (state.policy.float8 != BufferizationPolicy::Float8::Every && bufferTypeOf(given).getElementTypeBitWidth() == 8)
    return emitError(loc) << "expected operands of 16 bits or more for a convolution's call, got "
                          << bufferTypeOf(given).getElementType() << ": run fusion-widen-operands";
  Value found = state.dense(loc, given, order);
  // An input that had to be rearranged is read in its new layout from here on; filters that are data to the library are
  // small.
  bool isFilter = state.policy.filters == BufferizationPolicy::Filters::ChannelsLast && tensor == conv.getW() &&
                  tensor.getDefiningOp<train::ReadOp>();
  if (isa<BlockArgument>(tensor) || isFilter)
    state.setBuffer(tensor, found);
  return found;
}

/// Parts of a norm, vectors dense and its input channels-last.
SmallVector<Value> normBuffers(library::ConvOp conv, Location loc, BufferizationState &state) {
  SmallVector<Value> buffers;
  for (Value part : conv.getNorm()) {
    int64_t rank = tensorType(part).getRank();
    buffers.push_back(state.dense(loc, state.buffer(part), rank == 1 ? rowMajor(1) : channelsLast(rank)));
  }
  return buffers;
}

/// One buffer for the sums, of which each is a row.
Value sumsBuffer(library::ConvOp conv, Location loc, BufferizationState &state) {
  if (conv.getSums().empty())
    return {};
  int64_t channels = tensorType(conv.getSums().front()).getDimSize(0);
  Value buffer = state.allocate(loc, MemRefType::get({2, channels}, state.builder.getF32Type()));
  for (auto [i, sum] : llvm::enumerate(conv.getSums()))
    state.setBuffer(sum, state.view(loc, buffer, {channels}, {1}, static_cast<int64_t>(i) * channels));
  return buffer;
}

struct ConvBufferization : Bufferizable::ExternalModel<ConvBufferization, library::ConvOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }

  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto conv = cast<library::ConvOp>(op);
    Location loc = op->getLoc();
    SmallVector<Value> memrefs;
    for (Value tensor : {conv.getX(), conv.getW(), conv.getY()}) {
      Order order = orderOf(conv, tensor, state);
      FailureOr<Value> memref = tensor.getDefiningOp() == op ? state.denseResult(tensor, order)
                                                             : operandBuffer(conv, tensor, order, loc, state);
      if (failed(memref))
        return failure();
      memrefs.push_back(*memref);
    }
    SmallVector<Value> norm = normBuffers(conv, loc, state);
    Value sums = sumsBuffer(conv, loc, state);
    auto call = rt::ConvOp::create(state.builder, loc, kindOf(conv), memrefs[0], memrefs[1], memrefs[2], Value(), sums,
                                   norm, conv.getStrides(), conv.getDilations(), conv.getPadsLow(), conv.getPadsHigh(),
                                   conv.getGroups());
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

void mpt::memory::attachConvModel(MLIRContext *context) {
  library::ConvOp::attachInterface<ConvBufferization>(*context);
}
