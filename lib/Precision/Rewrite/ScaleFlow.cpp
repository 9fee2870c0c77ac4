// SPDX-License-Identifier: Apache-2.0
// Forward propagation of loss scales through a function.
#include "mpt/Precision/ScaleFlow.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/GemmLike.h"

using namespace mlir;
using namespace mpt;

ScaleFlow::ScaleFlow(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    scales[argument] = {};
  for (Operation &op : function.getBody().front())
    if (std::optional<GradientScales> carried = resultScales(&op))
      for (Value result : op.getResults())
        scales[result] = *carried;
}

std::optional<GradientScales> ScaleFlow::resultScales(Operation *op) {
  if (op->getNumOperands() == 0) {
    bool fitsAny = op->hasTrait<OpTrait::ConstantLike>() && !hasAttr<MPTDialect::SeedAttrHelper>(op);
    return fitsAny ? std::nullopt : std::optional(GradientScales());
  }
  if (auto changes = dyn_cast<GradientScale>(op))
    return changes.getResultScales([&](Value operand) { return of(operand); });
  return throughLinear(op);
}

std::optional<GradientScales> ScaleFlow::throughLinear(Operation *op) {
  std::optional<GradientScales> carried;
  unsigned factors = 0;
  for (Value operand : op->getOperands())
    if (std::optional<GradientScales> other = of(operand)) {
      factors += !other->empty();
      if (carried && !carried->empty() && !other->empty() && *carried != *other)
        meetings.insert(op);
      if (!carried || carried->size() < other->size())
        carried = other;
    }
  if (factors > 1 && isa<GemmLike>(op))
    multiplications.insert(op);
  return carried;
}

std::optional<GradientScales> ScaleFlow::of(Value value) const {
  auto found = scales.find(value);
  return found == scales.end() ? std::nullopt : std::optional(found->second);
}
