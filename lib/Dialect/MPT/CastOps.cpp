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

/// The constraints that encode_blocks and decode_blocks share; `x` is the values.
static LogicalResult verifyBlocks(Operation *op, Value x, Value codes, Value scales) {
  RankedTensorType wide = tensorType(x), narrow = tensorType(codes), factors = tensorType(scales);
  Type code = narrow.getElementType();
  if (wide.getShape() != narrow.getShape())
    return op->emitOpError() << "C1: expected codes of the shape of " << wide << ", got " << narrow;
  if (factors.getRank() != 1 || factors.getNumElements() == 0 || wide.getNumElements() % factors.getNumElements() != 0)
    return op->emitOpError() << "C2: expected a vector of scales whose extent divides " << wide.getNumElements()
                             << " elements, got " << factors;
  if (!code.isUnsignedInteger(8) && !isa<Float8E4M3FNType>(code))
    return op->emitOpError() << "C3: expected codes of ui8 or f8E4M3FN, got " << code;
  return success();
}
LogicalResult EncodeBlocksOp::verify() { return verifyBlocks(*this, getX(), getCodes(), getScales()); }
LogicalResult DecodeBlocksOp::verify() { return verifyBlocks(*this, getX(), getCodes(), getScales()); }

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
