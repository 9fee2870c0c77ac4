// SPDX-License-Identifier: Apache-2.0
// Parts that the classes of scale rules share: meets, products, powers, and their errors.
#include "Rules.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;

bool scales::carriesScales(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

void scales::setResults(Operation *op, ScaleInference &inference, const ScaleType &type) {
  for (Value result : op->getResults())
    if (carriesScales(result))
      inference.set(result, type);
}

ScaleType scales::meet(ScaleInference &inference, ValueRange values) {
  std::optional<ScaleType> common;
  for (Value value : values) {
    if (!carriesScales(value))
      continue;
    ScaleType type = inference.of(value);
    if (!common || common->isZero()) {
      common = type;
    } else if (!type.isZero() && !common->carriesAs(type)) {
      if (common->isProduct() && type.isProduct())
        inference.refuse() << "expected operands that carry one scale, got " << common->str() << " and " << type.str()
                           << ": train.rescale or train.unscale is missing";
      common = common->isProduct() && type.isProduct() ? *common : ScaleType::mixed();
    }
  }
  return common.value_or(ScaleType::unscaled());
}

void scales::needUnscaled(Operation *op, ScaleInference &inference, std::optional<unsigned> but) {
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    if (!carriesScales(operand) || i == but)
      continue;
    if (ScaleType type = inference.of(operand); !type.isUnscaled() && !type.isZero())
      inference.refuse() << "expected operand " << i << " without a scale, got " << type.str()
                         << ": the result is not in proportion to it, so train.unscale has to come first";
  }
}

void scales::inferChoice(Operation *op, ScaleInference &inference, ValueRange values) {
  bool ofScales = llvm::all_of(values, [&](Value value) { return inference.of(value).isScaleMaterial(); });
  bool any = llvm::any_of(values, [&](Value value) { return inference.of(value).isScale(); });
  setResults(op, inference, ofScales && any ? ScaleType::scales() : meet(inference, values).withoutPurity());
}

void scales::inferPower(Operation *op, ScaleInference &inference, int64_t n, int64_t root) {
  ScaleType type = inference.of(op->getOperand(0));
  std::optional<ScaleType> result = type.power(n, root);
  if (!result)
    inference.refuse() << "expected an operand whose scale has this root, got " << type.str();
  setResults(op, inference, result.value_or(ScaleType::mixed()));
}

void scales::inferMovement(Operation *op, ScaleInference &inference) {
  setResults(op, inference, inference.of(op->getOperand(0)));
}

void scales::inferMultilinear(Operation *op, ScaleInference &inference) {
  std::optional<ScaleType> product;
  for (Value operand : op->getOperands())
    if (carriesScales(operand))
      product = product ? product->times(inference.of(operand)) : inference.of(operand);
  setResults(op, inference, product.value_or(ScaleType::unscaled()));
}

void scales::inferInvariant(Operation *op, ScaleInference &inference) {
  ScaleType type = meet(inference, op->getOperands());
  if (type.isElementwise())
    inference.refuse() << "expected elements that carry one scale, got " << type.str();
}
