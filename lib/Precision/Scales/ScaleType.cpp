// SPDX-License-Identifier: Apache-2.0
// Products of powers of scales: multiplication, powers, and how messages say them.
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/GradientScale.h"

using namespace mlir;
using namespace mpt;

ScaleType ScaleType::of(Value scale) {
  ScaleType type(Kind::product);
  type.isPure = type.isPositive = true;
  type.powers.emplace_back(scale, 1);
  return type;
}

ScaleType ScaleType::withoutPurity() const {
  ScaleType type = *this;
  type.isPure = type.isPositive = false;
  return type;
}

ScaleType ScaleType::bound() {
  ScaleType type = unscaled();
  type.isPositive = true;
  return type;
}

ScaleType ScaleType::times(const ScaleType &other) const {
  if (isZero() || other.isZero())
    return zero();
  if (!isProduct() || !other.isProduct())
    return mixed();
  ScaleType product(Kind::product);
  product.isPure = isPure && other.isPure;
  product.isPositive = isPositive && other.isPositive;
  const Power *a = powers.begin(), *b = other.powers.begin();
  auto before = [](const Power &x, const Power &y) {
    return x.first.getAsOpaquePointer() < y.first.getAsOpaquePointer();
  };
  while (a != powers.end() || b != other.powers.end()) {
    if (b == other.powers.end() || (a != powers.end() && before(*a, *b)))
      product.powers.push_back(*a++);
    else if (a == powers.end() || before(*b, *a))
      product.powers.push_back(*b++);
    else if (Power sum(a->first, a->second + b->second); ++a, ++b, sum.second != 0)
      product.powers.push_back(sum);
  }
  return product;
}

std::optional<ScaleType> ScaleType::power(int64_t n, int64_t root) const {
  if (!isProduct())
    return *this;
  ScaleType result(Kind::product);
  result.isPure = isPure;
  result.isPositive = isPositive;
  for (auto [scale, exponent] : powers) {
    if (exponent * n % root != 0)
      return std::nullopt;
    if (n != 0)
      result.powers.emplace_back(scale, exponent * n / root);
  }
  return result;
}

/// A state's name, else the node that the scale was made at.
static std::string nameOf(Value scale) {
  if (!scale)
    return "scale";
  if (auto read = scale.getDefiningOp<train::ReadOp>())
    return read.getState().str();
  if (auto argument = dyn_cast<BlockArgument>(scale))
    return "argument " + std::to_string(argument.getArgNumber());
  std::string name = nodeName(scale.getLoc()).str();
  StringRef made = scale.getDefiningOp()->getName().getStringRef();
  return name.empty() ? made.str() : (made + " at " + name).str();
}

std::string ScaleType::str() const {
  if (isZero())
    return "zeros";
  if (isElementwise())
    return "a scale of its own for each element";
  if (powers.empty())
    return "no scale";
  std::string text = "the scale ";
  for (auto [i, power] : llvm::enumerate(powers)) {
    text += (i ? " * " : "") + nameOf(power.first);
    if (power.second != 1)
      text += "^" + std::to_string(power.second);
  }
  return text;
}
