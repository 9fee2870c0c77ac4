// SPDX-License-Identifier: Apache-2.0
// Export of the elementwise family.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

bool isFloat32(double value) { return static_cast<double>(static_cast<float>(value)) == value; }

/// Ops with the same operands in ONNX.
template <typename Op> void sameOperands(ExportRules &rules, StringRef type) {
  addRule<Op>(rules, [type](Op op, OnnxWriter &w) {
    Values inputs;
    for (Value operand : op->getOperands())
      inputs.push_back(w.get(operand));
    return Values{w.node(type, inputs)};
  });
}

/// One ONNX op for booleans, another for integers.
template <typename Op> void logical(ExportRules &rules, StringRef boolean, StringRef bitwise) {
  addRule<Op>(rules, [=](Op op, OnnxWriter &w) {
    Values inputs;
    for (Value operand : op->getOperands())
      inputs.push_back(w.get(operand));
    return Values{w.node(elementOf(op->getResult(0)).isInteger(1) ? boolean : bitwise, inputs)};
  });
}

OnnxValue compare(CompareOp op, OnnxWriter &w) {
  OnnxValue a = w.get(op.getLhs()), b = w.get(op.getRhs());
  switch (op.getPredicate()) {
  case Predicate::eq:
    return w.node("Equal", {a, b});
  case Predicate::ne:
    return w.node("Not", {w.node("Equal", {a, b})});
  case Predicate::lt:
    return w.node("Less", {a, b});
  case Predicate::le:
    return w.node("LessOrEqual", {a, b});
  case Predicate::gt:
    return w.node("Greater", {a, b});
  case Predicate::ge:
    return w.node("GreaterOrEqual", {a, b});
  }
  llvm_unreachable("unknown predicate");
}

/// dy times a slope, in a wider type and rounded once.
template <typename Op, typename Slope> void gradient(ExportRules &rules, Slope slope) {
  addRule<Op>(rules, [=](Op op, OnnxWriter &w) {
    Arithmetic a(w, w.innerType());
    OnnxValue dy = a.in(op.getLhs());
    return Values{a.out(a.mul(dy, slope(a, a.in(op.getRhs()))), op.getY())};
  });
}

void addActivationRules(ExportRules &rules) {
  addRule<GeluOp>(rules, [](GeluOp op, OnnxWriter &w) {
    StringRef form = op.getForm() == GeluForm::tanh ? "tanh" : "none";
    return Values{w.node("Gelu", {w.get(op.getX())}, {{"approximate", form}})};
  });
  addRule<EluOp>(rules, [](EluOp op, OnnxWriter &w) {
    return Values{w.node("Elu", {w.get(op.getX())}, {{"alpha", op.getAlpha().convertToDouble()}})};
  });
  // Attributes of operators are FP32; a slope that FP32 does not hold becomes arithmetic.
  addRule<LeakyReluOp>(rules, [](LeakyReluOp op, OnnxWriter &w) {
    double alpha = op.getAlpha().convertToDouble();
    if (isFloat32(alpha) || w.isPortable())
      return Values{w.node("LeakyRelu", {w.get(op.getX())}, {{"alpha", alpha}})};
    Arithmetic a(w, w.innerType());
    OnnxValue x = a.in(op.getX()), below = w.node("Less", {x, a.number(0)});
    return Values{a.out(w.node("Where", {below, a.mul(x, alpha), x}), op.getY())};
  });
  addRule<HardSigmoidOp>(rules, [](HardSigmoidOp op, OnnxWriter &w) {
    double alpha = op.getAlpha().convertToDouble(), beta = op.getBeta().convertToDouble();
    // Its result in FP32 would be rounded twice, and executors have it in no wider type.
    if (isFloat32(alpha) && isFloat32(beta) && !w.isWidened(op.getX()))
      return Values{w.node("HardSigmoid", {w.get(op.getX())}, {{"alpha", alpha}, {"beta", beta}})};
    Arithmetic a(w, w.innerType());
    OnnxValue line = a.add(a.mul(a.in(op.getX()), alpha), a.number(beta));
    return Values{a.out(w.node("Clip", {line, a.number(0), a.number(1)}), op.getY())};
  });
  addRule<ClampOp>(rules, [](ClampOp op, OnnxWriter &w) {
    Type type = elementOf(op.getY());
    return Values{w.node("Clip", {w.get(op.getX()), w.scalar(type, op.getLow().convertToDouble()),
                                  w.scalar(type, op.getHigh().convertToDouble())})};
  });
}

} // namespace

void mpt::addElementwiseRules(ExportRules &rules) {
  sameOperands<AbsOp>(rules, "Abs");
  sameOperands<NegOp>(rules, "Neg");
  sameOperands<SignOp>(rules, "Sign");
  sameOperands<FloorOp>(rules, "Floor");
  sameOperands<CeilOp>(rules, "Ceil");
  sameOperands<RoundOp>(rules, "Round");
  sameOperands<ReluOp>(rules, "Relu");
  sameOperands<ExpOp>(rules, "Exp");
  sameOperands<LogOp>(rules, "Log");
  sameOperands<SqrtOp>(rules, "Sqrt");
  sameOperands<ReciprocalOp>(rules, "Reciprocal");
  sameOperands<SinOp>(rules, "Sin");
  sameOperands<CosOp>(rules, "Cos");
  sameOperands<TanhOp>(rules, "Tanh");
  sameOperands<SigmoidOp>(rules, "Sigmoid");
  sameOperands<ErfOp>(rules, "Erf");
  sameOperands<SoftplusOp>(rules, "Softplus");
  sameOperands<IsNaNOp>(rules, "IsNaN");
  sameOperands<IsInfOp>(rules, "IsInf");
  sameOperands<AddOp>(rules, "Add");
  sameOperands<SubOp>(rules, "Sub");
  sameOperands<MulOp>(rules, "Mul");
  sameOperands<DivOp>(rules, "Div");
  sameOperands<PowOp>(rules, "Pow");
  sameOperands<MaxOp>(rules, "Max");
  sameOperands<MinOp>(rules, "Min");
  sameOperands<SelectOp>(rules, "Where");
  logical<NotOp>(rules, "Not", "BitwiseNot");
  logical<AndOp>(rules, "And", "BitwiseAnd");
  logical<OrOp>(rules, "Or", "BitwiseOr");
  logical<XorOp>(rules, "Xor", "BitwiseXor");
  addActivationRules(rules);

  addRule<ModOp>(rules, [](ModOp op, OnnxWriter &w) {
    return Values{w.node("Mod", {w.get(op.getLhs()), w.get(op.getRhs())}, {{"fmod", int64_t(1)}})};
  });
  addRule<RsqrtOp>(rules, [](RsqrtOp op, OnnxWriter &w) { // rounded once, so not in the result's type
    Arithmetic a(w, w.innerType());
    return Values{a.out(w.node("Reciprocal", {w.node("Sqrt", {a.in(op.getX())})}), op.getY())};
  });
  addRule<IsFiniteOp>(rules, [](IsFiniteOp op, OnnxWriter &w) {
    OnnxValue x = w.cast(w.get(op.getX()), elementOf(op.getX()), wideType(elementOf(op.getX())));
    return Values{w.node("Not", {w.node("Or", {w.node("IsNaN", {x}), w.node("IsInf", {x})})})};
  });
  addRule<CompareOp>(rules, [](CompareOp op, OnnxWriter &w) { return Values{compare(op, w)}; });
  addRule<ReluBackwardOp>(rules, [](ReluBackwardOp op, OnnxWriter &w) {
    OnnxValue zero = w.scalar(elementOf(op.getY()), 0.0);
    return Values{w.node("Where", {w.node("Greater", {w.get(op.getRhs()), zero}), w.get(op.getLhs()), zero})};
  });
  // In FP32 1 - y^2 loses digits where |y| is near 1; of (1 - y) (1 + y) one factor is exact there.
  gradient<TanhBackwardOp>(rules, [](Arithmetic &a, const OnnxValue &y) {
    OnnxValue one = a.number(1.0);
    return a.type.isF64() ? a.sub(one, a.mul(y, y)) : a.mul(a.sub(one, y), a.add(one, y));
  });
  gradient<SigmoidBackwardOp>(rules,
                              [](Arithmetic &a, const OnnxValue &y) { return a.mul(y, a.sub(a.number(1.0), y)); });
}
