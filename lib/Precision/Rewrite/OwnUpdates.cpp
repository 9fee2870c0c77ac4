// SPDX-License-Identifier: Apache-2.0
// Which gradient, and which states, the new values of a parameter's states hang on.
#include "mpt/Precision/OwnUpdates.h"

#include "mpt/Dialect/MPT/UpdateOps.h"
#include "mpt/Interfaces/OptimizerUpdate.h"

using namespace mlir;
using namespace mpt;

std::string mpt::extraUpdatesOf(StringRef parameter) { return (parameter + ".extra_updates").str(); }

/// The operand of an optimizer that is the number of the step.
static OpOperand *countOperand(Operation *op) {
  if (!isa<OptimizerUpdate>(op))
    return nullptr;
  for (OpOperand &operand : op->getOpOperands())
    if (auto type = dyn_cast<RankedTensorType>(operand.get().getType());
        type && type.getRank() == 0 && type.getElementType().isInteger(64))
      return &operand;
  return nullptr;
}

/// False where the first step is as all others, so that the number of the step changes nothing.
static bool dependsOnCount(Operation *op) {
  auto sgd = dyn_cast<SGDOp>(op);
  return !sgd || (sgd.getSlot() && !sgd.getDampening().isZero());
}

OwnUpdates::OwnUpdates(func::FuncOp function, const States &states)
    : body(&function.getBody().front()), states(states) {
  for (auto gradient : function.getOps<train::GradientOp>())
    updated.insert(gradient.getParameterAttr().getAttr());
  for (auto write : function.getOps<train::WriteOp>())
    written.insert(write.getStateAttr().getAttr());
  for (Operation &op : *body) {
    StringAttr own, other;
    if (auto gradient = dyn_cast<train::GradientOp>(op))
      own = gradient.getParameterAttr().getAttr();
    else
      for (Value operand : op.getOperands())
        for (StringAttr next : {behind.lookup(operand), behindOthers.lookup(operand)})
          if (next && next != own)
            (own ? other : own) = next;
    for (Value result : op.getResults()) {
      if (own)
        behind[result] = own;
      if (other)
        behindOthers[result] = other;
    }
  }
}

StringAttr OwnUpdates::parameterOf(StringAttr name) const {
  train::StateOp state = states.lookup(name);
  if (!state || state.getRole() == train::Role::accumulator)
    return {};
  return state.getOfAttr() ? state.getOfAttr() : name;
}

StringAttr OwnUpdates::ownerOf(train::WriteOp write) const {
  StringAttr parameter = parameterOf(write.getStateAttr().getAttr());
  return updated.contains(parameter) ? parameter : StringAttr();
}

/// The source of `value`, which hangs on no gradient, beside states of `parameter`.
OwnUpdates::Source OwnUpdates::sourceOf(Value value, StringAttr parameter) const {
  Source source;
  SmallVector<Value> work{value};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (auto read = dyn_cast_or_null<train::ReadOp>(op)) {
      StringAttr name = read.getStateAttr().getAttr();
      train::StateOp state = states.lookup(name);
      if (!state || !written.contains(name) || parameterOf(name) == parameter || state.getRole() == train::Role::rng)
        continue;
      if (state.getRole() != train::Role::counter)
        return {Reads::foreign, name};
      source = {Reads::count, name};
    } else if (op) {
      for (Value operand : op->getOperands())
        if (seen.insert(operand).second)
          work.push_back(operand);
    }
  }
  return source;
}

LogicalResult OwnUpdates::verify(train::WriteOp write) const {
  StringAttr parameter = ownerOf(write);
  auto refuse = [&](const Twine &what) {
    return mlir::emitError(write.getLoc())
           << "expected an update of " << write.getState() << " by the gradient of '" << parameter.getValue()
           << "' alone for a finite check by parameter, got one " << what
           << "; check the step as a whole: --loss-scale=check=step";
  };
  SmallVector<Value> work{write.getValue()};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    Operation *op = value.getDefiningOp();
    StringAttr own = behind.lookup(value), other = behindOthers.lookup(value);
    if (StringAttr foreign = other && other != parameter ? other : own; foreign && foreign != parameter)
      return refuse("that the gradient of '" + foreign.getValue() +
                    "' takes part in, as where gradients are clipped by their global norm");
    if (!own) {
      Source source = sourceOf(value, parameter);
      if (source.kind != Reads::own)
        return refuse("by '" + source.state.getValue() + "', which a skipped step leaves as it is");
      continue;
    }
    auto optimizer = dyn_cast<OptimizerUpdate>(op);
    for (OpOperand &operand : op->getOpOperands()) {
      bool mayCount = optimizer && (&operand == &optimizer.getRateMutable() || &operand == countOperand(op));
      bool counts =
          mayCount && !behind.contains(operand.get()) && sourceOf(operand.get(), parameter).kind == Reads::count;
      if (!isa<train::GradientOp>(op) && !counts && seen.insert(operand.get()).second)
        work.push_back(operand.get());
    }
  }
  return success();
}

SmallVector<OpOperand *> OwnUpdates::countsOf(StringAttr parameter) const {
  SmallVector<OpOperand *> counts;
  for (Operation &op : *body)
    if (OpOperand *count = countOperand(&op); count && dependsOnCount(&op) &&
                                              behind.lookup(op.getResult(0)) == parameter &&
                                              sourceOf(count->get(), parameter).kind == Reads::count)
      counts.push_back(count);
  return counts;
}
