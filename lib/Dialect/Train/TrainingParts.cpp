// SPDX-License-Identifier: Apache-2.0
// Parts of a training step, by data flow from the stated ones.
#include "mpt/Dialect/Train/TrainingParts.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;
using namespace mpt;

/// Training ops state a part by their kind.
static TrainingPart partOf(Operation *op) {
  if (std::optional<TrainingPart> stated = statedPart(op))
    return *stated;
  bool begins = isa<train::ScaleLossOp>(op) || hasAttr<MPTDialect::SeedAttrHelper>(op);
  return begins ? TrainingPart::backward : TrainingPart::forward;
}

TrainingParts::TrainingParts(func::FuncOp function) {
  Block &body = function.getBody().front();
  for (Operation &op : body.without_terminator()) { // results are no part: the caller reads the results of each
    TrainingPart part = partOf(&op);
    for (Value operand : op.getOperands())
      part = std::max(part, reached.lookup_or(operand, TrainingPart::forward));
    if (part != TrainingPart::forward)
      parts[&op] = part;
    // The gradient is complete: its readers update.
    if (isa<train::GradientOp>(op) && part != TrainingPart::forward)
      part = TrainingPart::update;
    if (part != TrainingPart::forward)
      for (Value result : op.getResults())
        reached[result] = part;
  }
  for (Operation &op : llvm::reverse(body)) {
    if (op.use_empty() || parts.contains(&op))
      continue;
    TrainingPart earliest = TrainingPart::update;
    for (Operation *user : op.getUsers())
      earliest = std::min(earliest, of(body.findAncestorOpInBlock(*user)));
    if (earliest != TrainingPart::forward)
      parts[&op] = earliest;
  }
}

std::optional<TrainingPart> mpt::statedPart(Operation *op) {
  auto stated = getAttr<train::TrainDialect::PartAttrHelper>(op);
  return stated ? std::optional(stated.getValue()) : std::nullopt;
}

void mpt::statePart(Operation *op, TrainingPart part) {
  setAttr<train::TrainDialect::PartAttrHelper>(op, train::TrainingPartAttr::get(op->getContext(), part));
}

bool mpt::isContraction(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  return semantics && semantics.getNumericClass() == NumericClass::Contraction;
}

void mpt::stateParts(func::FuncOp function) {
  TrainingParts parts(function);
  for (Operation &op : function.getBody().front())
    if (isContraction(&op) && !parts.isForward(&op))
      statePart(&op, parts.of(&op));
}

void mpt::carryPart(Operation *from, Operation *to) {
  if (std::optional<TrainingPart> stated = statedPart(from))
    statePart(to, *stated);
}

DenseSet<Value> mpt::activationsOf(func::FuncOp function) {
  DenseSet<Value> computed, moved;
  moved.insert(function.getArguments().begin(), function.getArguments().end());
  for (Operation &op : function.getBody().front()) {
    bool isComputed = llvm::any_of(op.getOperands(), [&](Value operand) { return computed.contains(operand); });
    bool isMoved = llvm::any_of(op.getOperands(), [&](Value operand) { return moved.contains(operand); });
    auto semantics = dyn_cast<PrecisionSemantics>(&op);
    bool moves = isa<CastOp>(op) || (semantics && semantics.getNumericClass() == NumericClass::Movement);
    if (isComputed || (isMoved && !moves))
      computed.insert(op.getResults().begin(), op.getResults().end());
    else if (isMoved)
      moved.insert(op.getResults().begin(), op.getResults().end());
  }
  return computed;
}
