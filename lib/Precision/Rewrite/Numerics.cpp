// SPDX-License-Identifier: Apache-2.0
// The accumulator type of an op, and its check.
#include "mpt/Precision/Numerics.h"

#include "mpt/Interfaces/Accumulates.h"

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
  auto accumulates = dyn_cast<Accumulates>(op);
  if (!accumulates || !accumulates.accumulates())
    return std::nullopt;
  SmallVector<Type> inputs;
  for (Type type : op->getOperandTypes())
    if (Type element = getElementTypeOrSelf(type); isa<FloatType>(element))
      inputs.push_back(element);
  Type out = getElementTypeOrSelf(op->getResult(0).getType());
  if (inputs.empty() || !isa<FloatType>(out))
    return std::nullopt;
  return Accumulation{widest(inputs), out, numericsOf(op)};
}

LogicalResult mpt::verifyAccumulator(Operation *op, Type accumulator, bool stated) {
  std::optional<Accumulation> found = accumulationOf(op);
  if (!found)
    return success();
  Type needed = widest({accumulator, found->in});
  auto readsNarrow = [&](Type type) {
    Type element = getElementTypeOrSelf(type);
    return isa<FloatType>(element) && isNarrower(element, needed);
  };
  if (!found->stated) {
    if (stated && llvm::any_of(op->getOperandTypes(), readsNarrow))
      return op->emitOpError() << "expected an accumulator type for " << found->in
                               << " inputs: run precision-widen-reductions";
    return success();
  }
  if (isNarrower(found->stated.getAcc(), needed))
    return op->emitOpError() << "expected an accumulator of at least " << needed << ", got " << found->stated.getAcc();
  if (isNarrower(found->stated.getOut(), found->out))
    return op->emitOpError() << "expected sums that are delivered in " << found->out << ", got a rounding to "
                             << found->stated.getOut();
  return success();
}
