// SPDX-License-Identifier: Apache-2.0
// What an op says about its accumulator.
#include "mpt/Precision/Numerics.h"

using namespace mlir;
using namespace mpt;

bool mpt::isNarrower(Type type, Type than) { return type.getIntOrFloatBitWidth() < than.getIntOrFloatBitWidth(); }

Type mpt::widest(ArrayRef<Type> types) {
  Type result = types.front();
  for (Type type : types)
    if (isNarrower(result, type))
      result = type;
    else if (result != type && result.getIntOrFloatBitWidth() == type.getIntOrFloatBitWidth())
      // Neither holds the other: f16 holds both 8-bit types, f32 both 16-bit ones.
      result = result.getIntOrFloatBitWidth() == 8 ? Type(Float16Type::get(type.getContext()))
                                                   : Type(Float32Type::get(type.getContext()));
  return result;
}

std::optional<Accumulation> mpt::accumulationOf(Operation *op) {
  auto names = op->getName().isRegistered() ? op->getName().getAttributeNames() : ArrayRef<StringAttr>();
  if (op->getNumOperands() == 0 || op->getNumResults() == 0 ||
      llvm::none_of(names, [](StringAttr name) { return name.getValue() == kNumericsAttr; }))
    return std::nullopt;
  SmallVector<Type> inputs;
  for (Type type : op->getOperandTypes())
    if (Type element = getElementTypeOrSelf(type); isa<FloatType>(element))
      inputs.push_back(element);
  Type out = getElementTypeOrSelf(op->getResult(0).getType());
  if (inputs.empty() || !isa<FloatType>(out))
    return std::nullopt;
  return Accumulation{widest(inputs), out, op->getAttrOfType<NumericsAttr>(kNumericsAttr)};
}
