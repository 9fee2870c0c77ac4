// SPDX-License-Identifier: Apache-2.0
// Gradient operators of ONNX Runtime Training (com.microsoft): the backward pass that its artifacts carry.
// Each becomes the core op that differentiation makes of its forward operator, or the ops of its decomposition.
#include "RuntimeGradients.h"

using namespace mlir;
using namespace mpt;

LogicalResult mpt::expectLike(Binder &b, unsigned i, Value like) {
  if (b.in(i).getType() != like.getType())
    return b.fail() << "expected operand " << i << " of type " << like.getType() << ", got " << b.in(i).getType();
  return success();
}

LogicalResult mpt::expectShape(Binder &b, unsigned i, ArrayRef<int64_t> shape) {
  if (b.shape(i) != shape)
    return b.fail() << "expected operand " << i << " of shape [" << shape << "], got " << b.in(i).getType();
  return success();
}

/// dY, then the forward result or input, of one type.
template <typename Op> static LogicalResult importSlope(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  return b.done(b.make<Op>(b.in(0), b.in(1)));
}

static LogicalResult importLeakyReluGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  Value kept = b.compare(Predicate::gt, b.in(1), 0.0);
  return b.done(b.select(kept, b.in(0), b.mul(b.in(0), b.floatAttr("alpha", 0.01))));
}

/// The tanh form where the forward operator at the same input is: ONNX Runtime 1.19.2 writes GeluGrad for both.
static GeluForm formOf(Binder &b, GeluForm said) {
  for (Operation *user : b.node.getInputs()[1].getUsers()) {
    auto forward = dyn_cast<onnx::NodeOp>(user);
    auto form =
        forward && forward.getOpType() == "Gelu" ? forward.getAttrs().getAs<StringAttr>("approximate") : StringAttr();
    if (form && form.getValue() == "tanh" && said == GeluForm::erf) {
      b.warn()
          << "the file has the gradient of the exact form where the forward pass has the tanh form, as ONNX Runtime "
             "1.19.2 writes it: replaced by the gradient of the tanh form";
      return GeluForm::tanh;
    }
  }
  return said;
}

template <GeluForm said> static LogicalResult importGeluGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  FailureOr<Value> x = b.plusOptional(b.in(1), 2);
  if (failed(x))
    return failure();
  return b.done(b.make<GeluBackwardOp>(b.in(0).getType(), b.in(0), *x, formOf(b, said)));
}

/// y = x s(alpha x), s the sigmoid: dx = dy s (1 + alpha x (1 - s)).
static LogicalResult importQuickGeluGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  Value x = b.mul(b.widen(b.in(1)), b.floatAttr("alpha", 1.702));
  Value s = b.make<SigmoidOp>(x), slope = b.mul(s, b.add(b.mul(x, b.add(b.neg(s), 1.0)), 1.0));
  return b.done(b.mul(b.in(0), b.cast(slope, b.element(0))));
}

template <typename Op, bool negative> static LogicalResult importWaveGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  Value dx = b.mul(b.in(0), b.make<Op>(b.in(1)));
  return b.done(negative ? b.neg(dx) : dx);
}

/// X times, or by, a number of any type.
static LogicalResult importScale(Binder &b) {
  if (failed(b.needFloat(1, 0)) || failed(b.need(2)))
    return failure();
  if (tensorType(b.in(1)).getNumElements() != 1)
    return b.fail() << "expected one number as scale, got " << b.in(1).getType();
  Value scale = b.broadcast(b.cast(b.reshape(b.in(1), {}), b.element(0)), b.shape(0), {});
  return b.done(b.intAttr("scale_down", 0) ? b.div(b.in(0), scale) : b.mul(b.in(0), scale));
}

/// The forward op whose mask this is.
static DropoutOp dropoutOf(Value mask) {
  auto compare = mask.getDefiningOp<CompareOp>();
  return compare ? compare.getLhs().getDefiningOp<DropoutOp>() : DropoutOp();
}

static LogicalResult importDropoutGrad(Binder &b) {
  if (failed(b.needFloat(1, 0)) || failed(b.need(2)))
    return failure();
  double ratio = 0.5;
  if (b.has(3))
    (void)b.in(3); // a mask of ones says the same
  if (b.has(2)) {
    FailureOr<double> given = b.number(2, "ratio");
    if (failed(given))
      return failure();
    ratio = *given;
  }
  if (!(ratio >= 0 && ratio < 1) || b.shape(1) != b.shape(0))
    return b.fail() << "expected a ratio in [0, 1) and a mask of dY's shape, got " << ratio << " and "
                    << b.in(1).getType();
  if (ratio == 0)
    return b.done(b.in(0));
  auto node = b.node.getInputs()[1].getDefiningOp<onnx::NodeOp>();
  if (node && node.getOpType() == "Dropout" && !dropoutOf(b.in(1))) {
    b.warn() << "the file scales the gradient of a Dropout that keeps everything, as ONNX Runtime 1.19.2 writes it: "
                "replaced by the gradient unscaled";
    return b.done(b.in(0));
  }
  // The same draws again, so that one op is dropout in both passes, and neither has it without.
  if (DropoutOp forward = dropoutOf(b.in(1)); forward && forward.getRatio().convertToDouble() == ratio)
    return b.done(b.make<DropoutOp>(b.in(0), forward.getKey(), forward.getRatioAttr(), forward.getStreamAttr()));
  return b.done(b.select(b.in(1), b.mul(b.in(0), 1 / (1 - ratio)), b.splatLike(b.in(0), 0.0)));
}

static LogicalResult importDivGrad(Binder &b) {
  auto common = b.broadcastShape(b.shape(1), b.shape(2));
  if (failed(common))
    return failure();
  if (ArrayRef<int64_t>(*common) != b.shape(0))
    return b.fail() << "expected dY of the shape of A / B, got " << b.in(0).getType();
  Value divisor = b.broadcastTo(b.in(2), *common), da = b.div(b.in(0), divisor);
  if (b.wants(0) && failed(b.set(0, b.sumTo(da, b.shape(1)))))
    return failure();
  Value quotient = b.div(b.broadcastTo(b.in(1), *common), divisor);
  return b.wants(1) ? b.set(1, b.sumTo(b.neg(b.mul(da, quotient)), b.shape(2))) : success();
}

void mpt::registerRuntimeGradients(RuleTable &t) {
  constexpr StringLiteral ms = "com.microsoft";
  t.onDomain(ms, "ReluGrad", importSlope<ReluBackwardOp>, NumericClass::Movement);
  t.onDomain(ms, "TanhGrad", importSlope<TanhBackwardOp>, NumericClass::Neutral);
  t.onDomain(ms, "SigmoidGrad", importSlope<SigmoidBackwardOp>, NumericClass::Neutral);
  t.onDomain(ms, "LeakyReluGrad", importLeakyReluGrad, NumericClass::Neutral);
  t.onDomain(ms, "GeluGrad", importGeluGrad<GeluForm::erf>, NumericClass::Neutral);
  t.onDomain(ms, "FastGeluGrad", importGeluGrad<GeluForm::tanh>, NumericClass::Neutral);
  t.onDomain(ms, "BiasGeluGrad_dX", importGeluGrad<GeluForm::erf>, NumericClass::Neutral);
  t.onDomain(ms, "BiasFastGeluGrad_dX", importGeluGrad<GeluForm::tanh>, NumericClass::Neutral);
  t.onDomain(ms, "QuickGeluGrad", importQuickGeluGrad, NumericClass::Neutral);
  t.onDomain(ms, "SinGrad", importWaveGrad<CosOp, false>, NumericClass::Neutral);
  t.onDomain(ms, "CosGrad", importWaveGrad<SinOp, true>, NumericClass::Neutral);
  t.onDomain(ms, "DropoutGrad", importDropoutGrad, NumericClass::Neutral);
  t.onDomain(ms, "DivGrad", takesFloats(3, 0, importDivGrad), NumericClass::Neutral);
  t.onDomain(ms, "Scale", importScale, NumericClass::Neutral);
  registerLayerGradients(t);
  registerMovementGradients(t);
  for (StringRef name : {"MaxPoolGrad", "AveragePoolGrad", "SinGrad", "CosGrad"})
    t.standardToo(name);
}
