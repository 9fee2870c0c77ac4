// SPDX-License-Identifier: Apache-2.0
// The forward analysis as one walk.
#include "RangeFlow.h"

#include "GraphView.h"

using namespace mlir;
using namespace mpt;

RangeFact RangeFlow::into(Operation *op) const {
  RangeFact in;
  for (Value operand : op->getOperands())
    if (auto known = facts.find(operand); known != facts.end())
      in = RangeFact::join(in, known->second);
  return in;
}

void RangeFlow::add(Value value, RangeFact fact) {
  if (fact.isBottom())
    return;
  RangeFact &known = facts[value];
  known = RangeFact::join(known, fact);
}

void RangeFlow::visit(Operation *op, RangeFact in) {
  for (Region &body : op->getRegions())
    for (BlockArgument argument : body.getArguments())
      add(argument, view.entryOf(argument));
  for (OpResult result : op->getResults())
    add(result, view.transferOf(result)(in));
  for (OpOperand &end : op->getOpOperands())
    if (Value result = view.resultOfEnd(end))
      if (auto known = facts.find(end.get()); known != facts.end())
        add(result, RangeFact(known->second));
}
