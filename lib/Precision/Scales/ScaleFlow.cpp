// SPDX-License-Identifier: Apache-2.0
// Forward inference of scale types through a function.
#include "mpt/Precision/ScaleFlow.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;
using train::TrainDialect;

LogicalResult ScaleFlow::infer() {
  nameScales();
  for (Operation &op : function.getBody().front()) {
    current = &op;
    if (auto rule = dyn_cast<GradientScale>(op))
      rule.inferScales(*this);
    else
      refuse() << "expected a rule by which loss scales go through it, got none: state one in lib/Precision/Scales";
    for (Value result : op.getResults())
      if (named.contains(result) && of(result).isUnscaled())
        types.insert_or_assign(result, ScaleType::of(result));
  }
  return success(!refused);
}

/// Constants and arguments become scales by being used as such. Reads of one state are one scale.
void ScaleFlow::nameScales() {
  for (Operation &op : function.getBody().front()) {
    if (auto rule = dyn_cast<GradientScale>(op))
      for (Value scale : rule.getScaleOperands())
        named.insert(scale);
    if (auto read = dyn_cast<train::ReadOp>(op))
      reads.try_emplace(read.getStateAttr().getAttr(), read.getValue());
  }
  for (BlockArgument argument : function.getArguments())
    if (named.contains(argument))
      types.insert({argument, ScaleType::of(argument)});
}

ScaleType ScaleFlow::of(Value value) const {
  auto found = types.find(value);
  return found == types.end() ? ScaleType::unscaled() : found->second;
}

void ScaleFlow::set(Value result, ScaleType type) {
  if (type.isScales() && tensorType(result).getNumElements() == 1)
    type = ScaleType::of(result);
  if (!type.isUnscaled() || type.isScaleMaterial())
    types.insert_or_assign(result, std::move(type));
}

ScaleType ScaleFlow::ofState(Value read, StringRef name) const {
  auto key = StringAttr::get(context, name);
  auto state = states.find(key);
  if (name == TrainDialect::kTensorScales)
    return ScaleType::scales();
  if (name == TrainDialect::kAmaxHistory)
    return ScaleType::mixed();
  if (state == states.end() || train::StateOp(state->second).getRole() != train::Role::scale)
    return ScaleType::unscaled();
  if (cast<RankedTensorType>(train::StateOp(state->second).getType()).getNumElements() != 1)
    return ScaleType::scales();
  return ScaleType::of(read ? reads.lookup(key) : read);
}

InFlightDiagnostic ScaleFlow::refuse() {
  refused = true;
  return current->emitOpError();
}
