// SPDX-License-Identifier: Apache-2.0
// The ops that conversions of operands are made of.
#include "mpt/Precision/OperandCasts.h"

#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

Value mpt::largestMagnitude(GraphBuilder &b, Value x) {
  Value top = b.reduce(ReduceKind::max, b.make<AbsOp>(x), axisRange(0, tensorType(x).getRank()));
  setAttr<MPTDialect::CheckedAttrHelper>(top.getDefiningOp());
  return b.widen(top);
}

Value mpt::tensorScale(GraphBuilder &b, Value top, Value previous, Type format, const TensorScaling &options) {
  double largest = APFloat::getLargest(cast<FloatType>(format).getFloatSemantics()).convertToDouble();
  return b.make<train::TensorScaleOp>(previous.getType(), top, previous, APFloat(largest), options.margin,
                                      options.powerOfTwo);
}

Value mpt::toNarrowOperand(GraphBuilder &b, RoundingCasts &casts, Value x, Value scale, Type type, RoundingMode mode) {
  if (scale) {
    mode.saturates = true;
    Value wide = b.widen(x);
    x = b.mul(wide, b.broadcast(scale, tensorType(wide).getShape(), {}));
  }
  return casts.cast(b.builder, b.loc, x, type, mode);
}

void mpt::takeScalesOut(Operation *op, ArrayRef<Value> scales, RoundingCasts &casts) {
  Value result = op->getResult(0);
  RankedTensorType type = tensorType(result);
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  GraphBuilder b(builder, op->getLoc());
  result.setType(type.clone(builder.getF32Type()));
  Value inverse;
  for (Value scale : scales) {
    Value one = b.make<ReciprocalOp>(scale);
    inverse = inverse ? b.mul(inverse, one) : one;
  }
  auto unscaled = MulOp::create(builder, op->getLoc(), result, b.broadcast(inverse, type.getShape(), {}));
  Value y = casts.cast(builder, op->getLoc(), unscaled, type.getElementType(), {});
  result.replaceAllUsesExcept(y, unscaled);
}
