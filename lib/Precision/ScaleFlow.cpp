// SPDX-License-Identifier: Apache-2.0
// Forward propagation of loss scales through a function.
#include "mpt/Precision/ScaleFlow.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Interfaces/GemmLike.h"

using namespace mlir;
using namespace mpt;

/// Statistics of gradients, and scales computed from them: numbers about gradients, not gradients.
static bool isAboutGradients(Operation *op) {
  return isa<train::MomentsOp, train::LogMomentsOp, train::LayerScaleOp, train::CastScaleOp, train::MergeScaleOp,
             train::TensorScaleOp, train::RollOp, train::AllFiniteOp>(op);
}

ScaleFlow::ScaleFlow(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    scales[argument] = {};
  for (Operation &op : function.getBody().front()) {
    std::optional<Scales> carried;
    if (op.getNumOperands() == 0) {
      if (op.hasTrait<OpTrait::ConstantLike>() && !hasAttr<MPTDialect::SeedAttrHelper>(&op))
        continue;
      carried.emplace();
    } else if (isAboutGradients(&op)) {
      carried.emplace();
    } else if (auto scale = dyn_cast<train::ScaleLossOp>(op)) {
      carried = of(scale.getSeed()).value_or(Scales());
      if (!hasAttr<MPTDialect::SeedAttrHelper>(&op))
        carried->push_back(scale.getScale());
    } else if (auto unscale = dyn_cast<train::UnscaleOp>(op)) {
      if ((carried = of(unscale.getGradient())) && !carried->empty())
        carried->pop_back();
    } else if (isa<train::RescaleOp>(op)) {
      carried = Scales{cast<train::RescaleOp>(op).getTo()};
    } else {
      unsigned factors = 0;
      for (Value operand : op.getOperands())
        if (std::optional<Scales> other = of(operand)) {
          factors += !other->empty();
          if (carried && !carried->empty() && !other->empty() && *carried != *other)
            meetings.insert(&op);
          if (!carried || carried->size() < other->size())
            carried = other;
        }
      if (factors > 1 && isa<GemmLike>(op))
        products.insert(&op);
    }
    if (carried)
      for (Value result : op.getResults())
        scales[result] = *carried;
  }
}

std::optional<ScaleFlow::Scales> ScaleFlow::of(Value value) const {
  auto found = scales.find(value);
  return found == scales.end() ? std::nullopt : std::optional<Scales>(found->second);
}
