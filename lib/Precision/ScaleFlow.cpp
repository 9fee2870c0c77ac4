// Forward propagation of loss-scale powers through a function.
#include "mpt/Precision/ScaleFlow.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/Attributes.h"

using namespace mlir;
using namespace mpt;

ScaleFlow::ScaleFlow(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    powers[argument] = 0;
  for (Operation &op : function.getBody().front()) {
    std::optional<int> power;
    if (op.getNumOperands() == 0) {
      if (op.hasTrait<OpTrait::ConstantLike>() && !op.hasAttr(kSeedAttr))
        continue;
      power = 0;
    } else if (auto scale = dyn_cast<train::ScaleLossOp>(op)) {
      power = powerOf(scale.getSeed()).value_or(0) + (op.hasAttr(kSeedAttr) ? 0 : 1);
    } else if (auto unscale = dyn_cast<train::UnscaleOp>(op)) {
      if (std::optional<int> before = powerOf(unscale.getGradient()))
        power = *before - 1;
    } else {
      for (Value operand : op.getOperands())
        if (std::optional<int> other = powerOf(operand))
          power = std::max(power.value_or(*other), *other);
    }
    if (power)
      for (Value result : op.getResults())
        powers[result] = *power;
  }
}

std::optional<int> ScaleFlow::powerOf(Value value) const {
  auto found = powers.find(value);
  return found == powers.end() ? std::nullopt : std::optional<int>(found->second);
}
