// SPDX-License-Identifier: Apache-2.0
// Gradients of the elementwise family. Kinks follow PyTorch: abs'(0) = relu'(0) = 0, ties of max and min share, clamp
// passes gradient on the closed interval.
#include "Rules.h"

#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(AbsOp) {
  b.give(op.getX(), [&] { return b.mul(b.dy(), b.make<SignOp>(op.getX())); });
}
MPT_GRADIENT(NegOp) {
  b.give(op.getX(), [&] { return b.neg(b.dy()); });
}
// Piecewise constant.
MPT_GRADIENT(SignOp) { (void)op, (void)b; }
MPT_GRADIENT(FloorOp) { (void)op, (void)b; }
MPT_GRADIENT(CeilOp) { (void)op, (void)b; }
MPT_GRADIENT(RoundOp) { (void)op, (void)b; }

MPT_GRADIENT(ReluOp) {
  b.give(op.getX(), [&] { return b.make<ReluBackwardOp>(b.dy(), op.getY()); });
}
MPT_GRADIENT(ExpOp) {
  b.give(op.getX(), [&] { return b.mul(b.dy(), op.getY()); });
}
MPT_GRADIENT(LogOp) {
  b.give(op.getX(), [&] { return b.div(b.dy(), op.getX()); });
}
MPT_GRADIENT(SqrtOp) {
  b.give(op.getX(), [&] { return b.div(b.mul(b.dy(), 0.5), op.getY()); });
}
MPT_GRADIENT(RsqrtOp) {
  Value y = op.getY();
  b.give(op.getX(), [&] { return b.mul(b.mul(b.dy(), -0.5), b.mul(y, b.mul(y, y))); });
}
MPT_GRADIENT(ReciprocalOp) {
  b.give(op.getX(), [&] { return b.neg(b.mul(b.dy(), b.mul(op.getY(), op.getY()))); });
}
MPT_GRADIENT(SinOp) {
  b.give(op.getX(), [&] { return b.mul(b.dy(), b.make<CosOp>(op.getX())); });
}
MPT_GRADIENT(CosOp) {
  b.give(op.getX(), [&] { return b.neg(b.mul(b.dy(), b.make<SinOp>(op.getX()))); });
}
MPT_GRADIENT(TanhOp) {
  b.give(op.getX(), [&] { return b.make<TanhBackwardOp>(b.dy(), op.getY()); });
}
MPT_GRADIENT(SigmoidOp) {
  b.give(op.getX(), [&] { return b.make<SigmoidBackwardOp>(b.dy(), op.getY()); });
}
MPT_GRADIENT(ErfOp) {
  Value x = op.getX();
  b.give(x, [&] { return b.mul(b.dy(), b.mul(b.make<ExpOp>(b.neg(b.mul(x, x))), 2.0 / std::sqrt(M_PI))); });
}
MPT_GRADIENT(SoftplusOp) {
  b.give(op.getX(), [&] { return b.mul(b.dy(), b.make<SigmoidOp>(op.getX())); });
}

// Gradients of gradients: linear in the incoming gradient, and functions of the forward result.
MPT_GRADIENT(ReluBackwardOp) {
  b.give(op.getLhs(), [&] { return b.make<ReluBackwardOp>(b.dy(), op.getRhs()); });
}
MPT_GRADIENT(TanhBackwardOp) {
  Value y = op.getRhs();
  b.give(op.getLhs(), [&] { return b.make<TanhBackwardOp>(b.dy(), y); });
  b.give(y, [&] { return b.mul(b.mul(b.dy(), op.getLhs()), b.mul(y, -2.0)); });
}
MPT_GRADIENT(SigmoidBackwardOp) {
  Value y = op.getRhs();
  b.give(op.getLhs(), [&] { return b.make<SigmoidBackwardOp>(b.dy(), y); });
  b.give(y, [&] { return b.mul(b.mul(b.dy(), op.getLhs()), b.add(b.mul(y, -2.0), 1.0)); });
}

MPT_GRADIENT(GeluOp) {
  b.give(op.getX(), [&] { return b.make<GeluBackwardOp>(b.dy(), op.getX(), op.getFormAttr()); });
}
MPT_GRADIENT(SwishOp) {
  double alpha = op.getAlpha().convertToDouble();
  b.give(op.getX(), [&] {
    Value s = b.make<SigmoidOp>(b.mul(op.getX(), alpha)), rest = b.add(b.neg(s), 1.0);
    return b.mul(b.dy(), b.add(s, b.mul(b.mul(op.getY(), rest), alpha)));
  });
}
MPT_GRADIENT(EluOp) {
  // alpha e^x = y + alpha on the negative side.
  b.give(op.getX(), [&] {
    Value negative = b.mul(b.dy(), b.add(op.getY(), op.getAlpha().convertToDouble()));
    return b.select(b.compare(Predicate::gt, op.getX(), 0.0), b.dy(), negative);
  });
}
MPT_GRADIENT(LeakyReluOp) {
  b.give(op.getX(), [&] {
    Value negative = b.mul(b.dy(), op.getAlpha().convertToDouble());
    return b.select(b.compare(Predicate::gt, op.getX(), 0.0), b.dy(), negative);
  });
}
MPT_GRADIENT(HardSigmoidOp) {
  b.give(op.getX(), [&] {
    Value y = op.getY(), slope = b.mul(b.dy(), op.getAlpha().convertToDouble());
    Value inside = b.make<AndOp>(b.compare(Predicate::gt, y, 0.0), b.compare(Predicate::lt, y, 1.0));
    return b.where(inside, slope);
  });
}
MPT_GRADIENT(ClampOp) {
  b.give(op.getX(), [&] {
    Value above = b.compare(Predicate::ge, op.getX(), op.getLow().convertToDouble());
    Value below = b.compare(Predicate::le, op.getX(), op.getHigh().convertToDouble());
    return b.where(b.make<AndOp>(above, below), b.dy());
  });
}

MPT_GRADIENT(AddOp) {
  b.give(op.getLhs(), b.dy());
  b.give(op.getRhs(), b.dy());
}
MPT_GRADIENT(SubOp) {
  b.give(op.getLhs(), b.dy());
  b.give(op.getRhs(), [&] { return b.neg(b.dy()); });
}
MPT_GRADIENT(MulOp) {
  b.give(op.getLhs(), [&] { return b.mul(b.dy(), op.getRhs()); });
  b.give(op.getRhs(), [&] { return b.mul(b.dy(), op.getLhs()); });
}
MPT_GRADIENT(DivOp) {
  b.give(op.getLhs(), [&] { return b.div(b.dy(), op.getRhs()); });
  b.give(op.getRhs(), [&] { return b.neg(b.div(b.mul(b.dy(), op.getY()), op.getRhs())); });
}
MPT_GRADIENT(ModOp) {
  // lhs - rhs trunc(lhs / rhs), the quotient constant.
  b.give(op.getLhs(), b.dy());
  b.give(op.getRhs(),
         [&] { return b.neg(b.mul(b.dy(), b.make<RoundOp>(b.div(b.sub(op.getLhs(), op.getY()), op.getRhs())))); });
}

/// d(x^p)/dx = p x^(p-1), 0 for p = 0.
static Value powerSlope(Backward &b, Value x, Value p) {
  DenseElementsAttr constant;
  if (matchPattern(p, m_Constant(&constant)) && constant.isSplat()) {
    double exponent = constant.getSplatValue<APFloat>().convertToDouble();
    if (exponent == 2.0)
      return b.mul(x, 2.0);
    return b.mul(b.make<PowOp>(x, b.splatLike(x, exponent - 1.0)), exponent);
  }
  Value slope = b.mul(p, b.make<PowOp>(x, b.add(p, -1.0)));
  return b.select(b.compare(Predicate::eq, p, 0.0), b.splatLike(p, 0.0), slope);
}
MPT_GRADIENT(PowOp) {
  Value x = op.getLhs(), p = op.getRhs();
  b.give(x, [&] { return b.mul(b.dy(), powerSlope(b, x, p)); });
  // x^p log x tends to 0 as x does.
  b.give(p, [&] {
    Value slope = b.mul(op.getY(), b.make<LogOp>(x));
    return b.where(b.compare(Predicate::ne, x, 0.0), b.mul(b.dy(), slope));
  });
}

/// The operand that `predicate` favours takes the gradient; equal operands take half each.
static void giveExtremum(Backward &b, Predicate predicate, Value lhs, Value rhs) {
  Value shared = b.select(b.compare(Predicate::eq, lhs, rhs), b.mul(b.dy(), 0.5), b.dy());
  b.give(lhs, [&] { return b.where(b.compare(predicate, lhs, rhs), shared); });
  b.give(rhs, [&] { return b.where(b.compare(predicate, rhs, lhs), shared); });
}
MPT_GRADIENT(MaxOp) { giveExtremum(b, Predicate::ge, op.getLhs(), op.getRhs()); }
MPT_GRADIENT(MinOp) { giveExtremum(b, Predicate::le, op.getLhs(), op.getRhs()); }

MPT_GRADIENT(SelectOp) {
  Value zero = b.splatLike(b.dy(), 0.0);
  b.give(op.getOnTrue(), [&] { return b.select(op.getCondition(), b.dy(), zero); });
  b.give(op.getOnFalse(), [&] { return b.select(op.getCondition(), zero, b.dy()); });
}

void attachElementwiseGradients(MLIRContext *context) {
  attachGradients<AbsOp, NegOp, SignOp, FloorOp, CeilOp, RoundOp, ReluOp, ExpOp, LogOp, SqrtOp, RsqrtOp, ReciprocalOp,
                  SinOp, CosOp, TanhOp, SigmoidOp, ErfOp, SoftplusOp, ReluBackwardOp, TanhBackwardOp, SigmoidBackwardOp,
                  GeluOp, SwishOp, EluOp, LeakyReluOp, HardSigmoidOp, ClampOp, AddOp, SubOp, MulOp, DivOp, ModOp, PowOp,
                  MaxOp, MinOp, SelectOp>(context);
}

} // namespace mpt
