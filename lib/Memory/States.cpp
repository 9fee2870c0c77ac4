// SPDX-License-Identifier: Apache-2.0
// State, constants and results of a function on buffers: their places before and after it runs.
#include "Models.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

Strided rowMajorPlace(Value tensor) {
  RankedTensorType type = tensorType(tensor);
  return {Sizes(type.getShape()), denseStrides(type.getShape(), rowMajor(type.getRank())), 0};
}

Value stateOf(train::WriteOp write, BufferizationState &state, Location loc) {
  return state.stateBuffer(write.getStateAttr(), tensorType(write.getValue()), loc);
}

struct ReadBufferization : Bufferizable::ExternalModel<ReadBufferization, train::ReadOp> {
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto read = cast<train::ReadOp>(op);
    state.setBuffer(read.getValue(),
                    state.stateBuffer(read.getStateAttr(), tensorType(read.getValue()), read.getLoc()));
    return success();
  }
};

struct ConstantBufferization : Bufferizable::ExternalModel<ConstantBufferization, ConstantOp> {
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto constant = cast<ConstantOp>(op);
    RankedTensorType type = tensorType(constant.getY());
    state.setBuffer(constant.getY(), rt::ConstantOp::create(state.builder, op->getLoc(),
                                                            state.ownType(constant.getY(), rowMajor(type.getRank())),
                                                            constant.getValueAttr()));
    return success();
  }
};

/// States are written where the function ends, unless the value's maker did so.
struct WriteBufferization : Bufferizable::ExternalModel<WriteBufferization, train::WriteOp> {
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto write = cast<train::WriteOp>(op);
    if (write.getCondition())
      return write.emitOpError() << "expected an unconditional write; run --fusion-lower-train first";
    state.writes.push_back(write);
    return success();
  }
};

struct WritePlaces : PlacesOperands::ExternalModel<WritePlaces, train::WriteOp> {
  PlaceKind getPlaceKind(Operation *) const { return PlaceKind::State; }
  Strided placeOf(Operation *op, unsigned operand, const Strided &) const {
    return rowMajorPlace(op->getOperand(operand));
  }
  Value bufferFor(Operation *op, unsigned, BufferizationState &state) const {
    auto write = cast<train::WriteOp>(op);
    return stateOf(write, state, write.getValue().getLoc());
  }
};

struct ReturnPlaces : PlacesOperands::ExternalModel<ReturnPlaces, func::ReturnOp> {
  PlaceKind getPlaceKind(Operation *) const { return PlaceKind::Output; }
  Strided placeOf(Operation *op, unsigned operand, const Strided &) const {
    return rowMajorPlace(op->getOperand(operand));
  }
  Value bufferFor(Operation *, unsigned operand, BufferizationState &state) const {
    return state.target.getArgument(state.source.getNumArguments() + operand);
  }
};

/// Copies values that their makers have not written in place: results to outputs, then values to states.
struct ReturnBufferization : Bufferizable::ExternalModel<ReturnBufferization, func::ReturnOp> {
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    for (OpOperand &operand : op->getOpOperands()) {
      Value output = cast<PlacesOperands>(op).bufferFor(operand.getOperandNumber(), state);
      if (!sameMemory(state.buffer(operand.get()), output))
        state.copy(op->getLoc(), state.buffer(operand.get()), output);
    }
    writeStates(state);
    func::ReturnOp::create(state.builder, op->getLoc());
    return success();
  }

private:
  static void writeStates(BufferizationState &state) {
    llvm::SmallPtrSet<Operation *, 8> written;
    for (train::WriteOp write : state.writes)
      written.insert(stateOf(write, state, write.getLoc()).getDefiningOp());
    SmallVector<std::tuple<Location, Value, Value>> copies;
    for (train::WriteOp write : state.writes) {
      Value memref = stateOf(write, state, write.getLoc()), value = state.buffer(write.getValue());
      if (sameMemory(value, memref))
        continue;
      // States that exchange values go through scratch, so that every write sees the old ones.
      Operation *root = rootOf(value).first.getDefiningOp();
      if (root && isa<rt::StateOp>(root) && written.contains(root)) {
        Value scratch = state.allocate(write.getLoc(), bufferTypeOf(memref));
        state.copy(write.getLoc(), value, scratch);
        value = scratch;
      }
      copies.emplace_back(write.getLoc(), value, memref);
    }
    for (auto [loc, value, memref] : copies)
      state.copy(loc, value, memref);
  }
};

} // namespace

void mpt::memory::attachStateModels(MLIRContext *context) {
  train::ReadOp::attachInterface<ReadBufferization>(*context);
  train::WriteOp::attachInterface<WriteBufferization, WritePlaces>(*context);
}
void mpt::memory::attachReturnModel(MLIRContext *context) {
  func::ReturnOp::attachInterface<ReturnBufferization, ReturnPlaces>(*context);
}
void mpt::memory::attachConstantModel(MLIRContext *context) {
  ConstantOp::attachInterface<ConstantBufferization>(*context);
}
