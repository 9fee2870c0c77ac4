// SPDX-License-Identifier: Apache-2.0
// Recurrences on buffers. As one call of the runtime: everything dense and row-major, and scratch for the packed
// weights.
#include "Models.h"
#include "RecurrentSteps.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

template <typename Op> struct RecurrenceBufferization : Bufferizable::ExternalModel<RecurrenceBufferization<Op>, Op> {
  WritesTo writesTo(Operation *) const { return WritesTo::Outputs; }

  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto source = cast<Op>(op);
    if (state.policy.recurrences == BufferizationPolicy::Recurrences::Loop) {
      loopOverSteps(source, state);
      return success();
    }
    Location loc = op->getLoc();
    SmallVector<Value> inputs, outputs;
    for (Value operand : op->getOperands())
      inputs.push_back(state.dense(loc, state.buffer(operand), rowMajor(tensorType(operand).getRank())));
    for (Value result : op->getResults())
      outputs.push_back(state.denseResult(result, rowMajor(tensorType(result).getRank())));
    constexpr bool backward = std::is_same_v<Op, RecurrenceBackwardOp>;
    auto bytes = [&](int64_t size) { return MemRefType::get({size}, state.builder.getI8Type()); };
    auto call = rt::RecurrenceOp::create(state.builder, loc, source.getCell(), inputs, outputs,
                                         state.allocate(loc, bytes(1)), source.getReverse(), backward);
    // How much scratch it needs, the call itself says.
    Operation *scratch = call.getWorkspace().getDefiningOp();
    OpBuilder::InsertionGuard guard(state.builder);
    state.builder.setInsertionPoint(call);
    call.getWorkspaceMutable().assign(state.allocate(loc, bytes(rt::describe(call).workspace_bytes)));
    scratch->erase();
    return success();
  }
};

} // namespace

void mpt::memory::attachRecurrentModels(MLIRContext *context) {
  RecurrenceOp::attachInterface<RecurrenceBufferization<RecurrenceOp>>(*context);
  RecurrenceBackwardOp::attachInterface<RecurrenceBufferization<RecurrenceBackwardOp>>(*context);
}
