// SPDX-License-Identifier: Apache-2.0
// Keys of products and of their conversions.
#include "mpt/Precision/Products.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Interfaces/GemmLike.h"

using namespace mlir;
using namespace mpt;

static std::string shapeOf(RankedTensorType type) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::interleave(type.getShape(), out, "x");
  return text;
}

static std::string typeText(RankedTensorType type, Type element) {
  std::string text = shapeOf(type);
  llvm::raw_string_ostream(text) << (text.empty() ? "" : "x") << element;
  return text;
}

/// The op's own attributes but the accumulator, which every form of it has.
static void printAttributes(Operation *op, llvm::raw_ostream &out) {
  SmallVector<NamedAttribute> own;
  for (NamedAttribute entry : op->getPropertiesAsAttribute() ? cast<DictionaryAttr>(op->getPropertiesAsAttribute())
                                                             : DictionaryAttr::get(op->getContext()))
    if (entry.getName() != "numerics")
      own.push_back(entry);
  if (own.empty())
    return;
  out << " {";
  llvm::interleaveComma(own, out,
                        [&](NamedAttribute entry) { out << entry.getName().getValue() << " = " << entry.getValue(); });
  out << "}";
}

Product::Product(Operation *op, const OpTypes &types, const PrecisionSettings &settings, const TrainingParts &parts) {
  llvm::raw_string_ostream text(key), sides(shapes);
  text << op->getName() << " (";
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    auto type = cast<RankedTensorType>(operand.getType());
    ProductOperand found;
    found.number = i;
    found.stored = i < types.operands.size() && types.operands[i] ? type.clone(types.operands[i]) : type;
    found.isGradient = parts.isGradient(operand);
    Type narrow = found.isGradient ? settings.gradients : settings.compute;
    if (isa<FloatType>(type.getElementType()) && narrow.getIntOrFloatBitWidth() == 8)
      found.narrow = narrow;
    text << (i ? ", " : "") << typeText(type, found.narrow ? found.narrow : found.stored.getElementType());
    sides << (i ? " by " : "") << shapeOf(type);
    operands.push_back(found);
  }
  text << ")";
  printAttributes(op, text);
  auto made = cast<RankedTensorType>(op->getResult(0).getType());
  result = !types.results.empty() && types.results[0] ? made.clone(types.results[0]) : made;
  text << " -> " << typeText(result, result.getElementType());
  if (auto gemm = dyn_cast<GemmLike>(op))
    operations = 2.0 * static_cast<double>(made.getNumElements()) * static_cast<double>(gemm.getReductionLength());
}

StringAttr mpt::nameInModel(Operation *op, const ValueKeys &keys) {
  std::string key = keys.of(op->getResult(0));
  return StringAttr::get(op->getContext(), StringRef(key).split('|').second);
}

std::string mpt::conversionKey(const ProductOperand &operand) {
  std::string text = typeText(operand.stored, operand.stored.getElementType());
  llvm::raw_string_ostream(text) << " -> " << operand.narrow;
  return text;
}

std::string mpt::recipeOf(const PrecisionSettings &settings) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << settings.storage << ", " << settings.compute << ", " << settings.gradients << ", ";
  const TensorScaling &scales = settings.tensorScaling;
  out << (!scales.enabled ? "no scales" : scales.delayed ? "delayed scales" : "current scales");
  if (settings.gradientCasts.stochastic)
    out << ", stochastic gradients";
  return text;
}
