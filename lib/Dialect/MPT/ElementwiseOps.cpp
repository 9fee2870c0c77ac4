// SPDX-License-Identifier: Apache-2.0
// Types, verification, folding and decompositions of the elementwise family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

/// i1 tensors of x's shape: the result of tests and comparisons.
static LogicalResult inferMask(Value x, SmallVectorImpl<Type> &types) {
  types.push_back(tensorType(x).clone(IntegerType::get(x.getContext(), 1)));
  return success();
}

MPT_INFER(IsNaNOp) { return inferMask(adaptor.getX(), types); }
MPT_INFER(IsInfOp) { return inferMask(adaptor.getX(), types); }
MPT_INFER(IsFiniteOp) { return inferMask(adaptor.getX(), types); }
MPT_INFER(CompareOp) { return inferMask(adaptor.getLhs(), types); }

//===----------------------------------------------------------------------===//
// Decompositions, in FP32 or wider.
//===----------------------------------------------------------------------===//

FailureOr<SmallVector<Value>> GeluOp::decompose(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  Value x = b.widen(getX()), inner;
  if (getForm() == GeluForm::tanh) {
    Value cube = b.mul(b.mul(x, x), x);
    inner = b.make<TanhOp>(b.mul(b.add(x, b.mul(cube, 0.044715)), std::sqrt(2.0 / M_PI)));
  } else {
    inner = b.make<ErfOp>(b.mul(x, std::sqrt(0.5)));
  }
  Value y = b.mul(b.mul(x, 0.5), b.add(inner, 1.0));
  return SmallVector<Value>{b.cast(y, tensorType(getY()).getElementType())};
}

FailureOr<SmallVector<Value>> GeluBackwardOp::decompose(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  Value dy = b.widen(getLhs()), x = b.widen(getRhs()), slope;
  Value square = b.mul(x, x);
  if (getForm() == GeluForm::tanh) {
    double c = std::sqrt(2.0 / M_PI);
    Value t = b.make<TanhOp>(b.mul(b.mul(x, b.add(b.mul(square, 0.044715), 1.0)), c));
    Value dt = b.mul(b.add(b.mul(square, 3.0 * 0.044715), 1.0), c);
    Value sech = b.add(b.neg(b.mul(t, t)), 1.0);
    slope = b.add(b.mul(b.add(t, 1.0), 0.5), b.mul(b.mul(b.mul(x, 0.5), sech), dt));
  } else {
    Value cdf = b.mul(b.add(b.make<ErfOp>(b.mul(x, std::sqrt(0.5))), 1.0), 0.5);
    Value pdf = b.mul(b.make<ExpOp>(b.mul(square, -0.5)), 1.0 / std::sqrt(2.0 * M_PI));
    slope = b.add(cdf, b.mul(x, pdf));
  }
  return SmallVector<Value>{b.cast(b.mul(dy, slope), tensorType(getY()).getElementType())};
}

FailureOr<SmallVector<Value>> SwishOp::decompose(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  Value x = b.widen(getX()), gate = b.make<SigmoidOp>(b.mul(x, getAlpha().convertToDouble()));
  return SmallVector<Value>{b.cast(b.mul(x, gate), tensorType(getY()).getElementType())};
}
