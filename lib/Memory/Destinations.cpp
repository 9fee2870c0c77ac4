// SPDX-License-Identifier: Apache-2.0
// Destination passing: results are written where they are wanted, if nothing forbids it.
#include "Bufferizer.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// Walks from `use` back through views with no other use to the value that some op computes.
Value producerOf(OpOperand &use, SmallVectorImpl<Operation *> &views) {
  Value value = use.get();
  while (Operation *op = value.getDefiningOp()) {
    // A slice leaves gaps that its source would have to fill; only full views can be written through.
    if (!isa<ReshapeOp, TransposeOp>(op) || !op->getOperand(0).hasOneUse())
      break;
    views.insert(views.begin(), op);
    value = op->getOperand(0);
  }
  return value;
}

void collectUses(Value value, SmallVectorImpl<OpOperand *> &uses) {
  for (OpOperand &use : value.getUses()) {
    uses.push_back(&use);
    if (isView(use.getOwner()))
      collectUses(use.getOwner()->getResult(0), uses);
  }
}

} // namespace

void Bufferizer::findDestinations() {
  auto add = [&](OpOperand &use) {
    Destination destination{{}, &use};
    Value value = producerOf(use, destination.views);
    if (isa_and_nonnull<FusionOp, library::GemmOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp, ConcatOp,
                        rt::AttendOp, rt::AttendGradientOp>(value.getDefiningOp()))
      destinations[value].push_back(std::move(destination));
  };
  // States first: a copy of a parameter costs more than one of an output.
  for (auto write : source.getOps<train::WriteOp>())
    add(write->getOpOperand(0));
  for (OpOperand &operand : source.front().getTerminator()->getOpOperands())
    add(operand);
  for (auto concat : source.getOps<ConcatOp>())
    for (OpOperand &part : concat->getOpOperands())
      if (part.get().hasOneUse())
        add(part);
  for (auto read : source.getOps<train::ReadOp>())
    collectUses(read.getValue(), readers[read.getStateAttr()]);
}

Value Bufferizer::stateBuffer(FlatSymbolRefAttr state, RankedTensorType type, Location loc) {
  Value &memref = states[state];
  if (!memref) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&target.front());
    memref = rt::StateOp::create(builder, loc, denseType(type, rowMajor(type.getRank())), state);
  }
  return memref;
}

bool Bufferizer::readersPrecede(FlatSymbolRefAttr state, Operation *op) const {
  auto it = readers.find(state);
  if (it == readers.end())
    return true;
  int64_t position = positions.lookup(op);
  return llvm::all_of(it->second, [&](OpOperand *use) {
    Operation *user = use->getOwner();
    if (user == op || isView(user))
      return true; // `op` itself is checked apart, views through their uses
    // Returns and other writes take effect at the end.
    return !isa<func::ReturnOp, train::WriteOp>(user) && positions.lookup(user) < position;
  });
}

bool Bufferizer::readByFusion(FlatSymbolRefAttr state, FusionOp fusion, unsigned output, const Kernel &kernel,
                              Value target) const {
  auto it = readers.find(state);
  if (it == readers.end())
    return false;
  for (OpOperand *use : it->second) {
    if (use->getOwner() != fusion.getOperation())
      continue;
    // In place only at the same index: the operand must be the state as it lies.
    if (!sameMemory(buffer(use->get()), target) ||
        !mayRunInPlace(kernel.function, use->getOperandNumber(), fusion.getInputs().size() + output))
      return true;
  }
  return false;
}

Value Bufferizer::resolve(const Destination &destination, Location loc, FlatSymbolRefAttr &state) {
  Operation *user = destination.use->getOwner();
  Value memref;
  if (auto write = dyn_cast<train::WriteOp>(user)) {
    state = write.getStateAttr();
    memref = stateBuffer(state, cast<RankedTensorType>(write.getValue().getType()), loc);
  } else if (isa<func::ReturnOp>(user)) {
    memref = target.getArgument(source.getNumArguments() + destination.use->getOperandNumber());
  } else {
    auto concat = cast<ConcatOp>(user);
    Value base = concatBuffer(concat, loc);
    Sizes strides = stridesOf(typeOf(base));
    int64_t offset = 0;
    for (OpOperand &part : concat->getOpOperands()) {
      if (&part == destination.use)
        break;
      offset += cast<RankedTensorType>(part.get().getType()).getDimSize(concat.getAxis()) * strides[concat.getAxis()];
    }
    auto type = cast<RankedTensorType>(destination.use->get().getType());
    memref =
        rt::ViewOp::create(builder, loc, bufferType(type.getShape(), type.getElementType(), strides), base, offset);
  }
  for (Operation *op : llvm::reverse(destination.views)) {
    auto type = cast<RankedTensorType>(op->getOperand(0).getType());
    Sizes strides = stridesOf(typeOf(memref));
    if (auto transpose = dyn_cast<TransposeOp>(op)) {
      Sizes inverse(strides.size());
      for (auto [i, p] : llvm::enumerate(transpose.getPermutation()))
        inverse[p] = strides[i];
      strides = inverse;
    } else {
      std::optional<Sizes> found = reshapeStrides(typeOf(memref).getShape(), strides, type.getShape());
      if (!found)
        return nullptr;
      strides = *found;
    }
    memref = view(loc, memref, type.getShape(), strides);
  }
  return memref;
}

Bufferizer::Target Bufferizer::targetFor(Value result) {
  auto it = destinations.find(result);
  if (it == destinations.end())
    return {};
  Operation *op = result.getDefiningOp();
  for (const Destination &destination : it->second) {
    if (auto write = dyn_cast<train::WriteOp>(destination.use->getOwner())) {
      // The parts of a concatenation are written before the op itself runs.
      if (isa<ConcatOp>(op) || !readersPrecede(write.getStateAttr(), op))
        continue;
      // Only kernels read and write at one index.
      auto reads = readers.find(write.getStateAttr());
      if (!isa<FusionOp>(op) && reads != readers.end() &&
          llvm::any_of(reads->second, [&](OpOperand *use) { return use->getOwner() == op; }))
        continue;
    }
    Target target;
    target.memref = resolve(destination, result.getLoc(), target.state);
    if (target.memref)
      return target;
  }
  return {};
}
