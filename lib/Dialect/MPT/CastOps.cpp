// SPDX-License-Identifier: Apache-2.0
// Verification and folding of casts.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

void CastOp::build(OpBuilder &builder, OperationState &state, Value x, Type elementType) {
  state.addOperands(x);
  state.addTypes(tensorType(x).clone(elementType));
}

LogicalResult CastOp::verify() {
  if (tensorType(getX()).getShape() != tensorType(getY()).getShape())
    return emitOpError() << "expected the result shape of " << getX().getType() << ", got " << getY().getType();
  if ((getRounding() == Rounding::Stochastic) != static_cast<bool>(getKey()))
    return emitOpError() << "expected a key for stochastic rounding, and only then";
  return getKey() ? verifyKey(*this, getKey()) : success();
}

/// True when every value of float type `from` is a value of float type `to`.
static bool isExact(Type from, Type to) {
  auto source = dyn_cast<FloatType>(from), target = dyn_cast<FloatType>(to);
  if (!source || !target)
    return false;
  const llvm::fltSemantics &a = source.getFloatSemantics(), &b = target.getFloatSemantics();
  return llvm::APFloat::isRepresentableBy(a, b);
}

OpFoldResult CastOp::fold(FoldAdaptor) {
  // Saturation makes a finite number of infinity, also where the type stays.
  auto real = dyn_cast<FloatType>(tensorType(getY()).getElementType());
  if (real && getOverflow() == Overflow::Saturate && llvm::APFloat::semanticsHasInf(real.getFloatSemantics()))
    return {};
  if (getX().getType() == getY().getType())
    return getX();
  // Only a widening followed by its exact inverse is no rounding at all; f32 -> bf16 -> f32 stays.
  auto inner = getX().getDefiningOp<CastOp>();
  if (inner && inner.getX().getType() == getY().getType() &&
      isExact(tensorType(inner.getX()).getElementType(), tensorType(inner.getY()).getElementType()))
    return inner.getX();
  return {};
}
