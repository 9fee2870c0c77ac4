// Export of the elementwise family.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

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

/// FP32 form of a narrow float value, and back.
OnnxValue wide(OnnxWriter &w, Value value) {
  return w.cast(w.get(value), elementOf(value), wideType(elementOf(value)));
}
OnnxValue narrow(OnnxWriter &w, OnnxValue value, Value like) {
  return w.cast(value, wideType(elementOf(like)), elementOf(like));
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

/// dy times a slope, both FP32, rounded to the result's type.
template <typename Op, typename Slope> void gradient(ExportRules &rules, Slope slope) {
  addRule<Op>(rules, [=](Op op, OnnxWriter &w) {
    Type type = wideType(elementOf(op.getY()));
    OnnxValue product = w.node("Mul", {wide(w, op.getLhs()), slope(w, wide(w, op.getRhs()), type)});
    return Values{narrow(w, product, op.getY())};
  });
}

void addCastRule(ExportRules &rules) {
  rules[CastOp::getOperationName()] = [](Operation *op, OnnxWriter &w) -> LogicalResult {
    auto cast = llvm::cast<CastOp>(op);
    Type to = elementOf(cast.getY());
    if (cast.getRounding() != Rounding::NearestEven)
      return op->emitOpError() << "has no ONNX form: Cast rounds to nearest even, not "
                               << stringifyRounding(cast.getRounding());
    auto real = dyn_cast<FloatType>(to);
    bool saturates = cast.getOverflow() == Overflow::Saturate;
    if (saturates && (!real || real.getWidth() > 8))
      return op->emitOpError() << "has no ONNX form: Cast saturates for 8-bit floats only";
    SmallVector<OnnxAttribute> attributes{{"to", int64_t(onnxElementType(to))}};
    if (real && real.getWidth() == 8)
      attributes.emplace_back("saturate", int64_t(saturates));
    w.set(cast.getY(), w.node("Cast", {w.get(cast.getX())}, attributes));
    return success();
  };
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
  addCastRule(rules);

  addRule<ModOp>(rules, [](ModOp op, OnnxWriter &w) {
    return Values{w.node("Mod", {w.get(op.getLhs()), w.get(op.getRhs())}, {{"fmod", int64_t(1)}})};
  });
  addRule<RsqrtOp>(rules, [](RsqrtOp op, OnnxWriter &w) {
    return Values{narrow(w, w.node("Reciprocal", {w.node("Sqrt", {wide(w, op.getX())})}), op.getY())};
  });
  addRule<IsFiniteOp>(rules, [](IsFiniteOp op, OnnxWriter &w) {
    OnnxValue x = w.cast(w.get(op.getX()), elementOf(op.getX()), wideType(elementOf(op.getX())));
    return Values{w.node("Not", {w.node("Or", {w.node("IsNaN", {x}), w.node("IsInf", {x})})})};
  });
  addRule<GeluOp>(rules, [](GeluOp op, OnnxWriter &w) {
    StringRef form = op.getForm() == GeluForm::tanh ? "tanh" : "none";
    return Values{w.node("Gelu", {w.get(op.getX())}, {{"approximate", form}})};
  });
  addRule<EluOp>(rules, [](EluOp op, OnnxWriter &w) {
    return Values{w.node("Elu", {w.get(op.getX())}, {{"alpha", op.getAlpha().convertToDouble()}})};
  });
  addRule<LeakyReluOp>(rules, [](LeakyReluOp op, OnnxWriter &w) {
    return Values{w.node("LeakyRelu", {w.get(op.getX())}, {{"alpha", op.getAlpha().convertToDouble()}})};
  });
  addRule<HardSigmoidOp>(rules, [](HardSigmoidOp op, OnnxWriter &w) {
    return Values{w.node("HardSigmoid", {w.get(op.getX())},
                         {{"alpha", op.getAlpha().convertToDouble()}, {"beta", op.getBeta().convertToDouble()}})};
  });
  addRule<ClampOp>(rules, [](ClampOp op, OnnxWriter &w) {
    Type type = elementOf(op.getY());
    return Values{w.node("Clip", {w.get(op.getX()), w.scalar(type, op.getLow().convertToDouble()),
                                  w.scalar(type, op.getHigh().convertToDouble())})};
  });
  addRule<CompareOp>(rules, [](CompareOp op, OnnxWriter &w) { return Values{compare(op, w)}; });
  addRule<ReluBackwardOp>(rules, [](ReluBackwardOp op, OnnxWriter &w) {
    OnnxValue zero = w.scalar(elementOf(op.getY()), 0.0);
    return Values{w.node("Where", {w.node("Greater", {w.get(op.getRhs()), zero}), w.get(op.getLhs()), zero})};
  });
  gradient<TanhBackwardOp>(rules, [](OnnxWriter &w, OnnxValue y, Type type) {
    return w.node("Sub", {w.scalar(type, 1.0), w.node("Mul", {y, y})});
  });
  gradient<SigmoidBackwardOp>(rules, [](OnnxWriter &w, OnnxValue y, Type type) {
    return w.node("Mul", {y, w.node("Sub", {w.scalar(type, 1.0), y})});
  });
  addRule<DropoutOp>(rules, [](DropoutOp op, OnnxWriter &w) {
    op.emitWarning() << "exported as Dropout, whose random numbers are the executor's own";
    OnnxValue ratio = w.scalar(Float32Type::get(op.getContext()), op.getRatio().convertToDouble());
    auto truth = DenseElementsAttr::get(RankedTensorType::get({}, IntegerType::get(op.getContext(), 1)), true);
    return Values{w.node("Dropout", {w.get(op.getX()), ratio, w.initializer(truth, "training")})};
  });
}
