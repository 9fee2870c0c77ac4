// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: arithmetic, comparison, activations, and functions written out in ops of core.
#include "Gelu.h"
#include "Trigonometry.h"

#include "mpt/Evaluation/Constants.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

template <typename Op> static LogicalResult unary(Binder &b) { return b.done(b.make<Op>(b.in(0))); }

/// For ops that core has on floats only: integers are left as they are.
template <typename Op> static LogicalResult rounding(Binder &b) {
  return b.done(b.isFloat(0) ? b.make<Op>(b.in(0)) : b.in(0));
}

/// Folds a variadic or binary op over its operands, broadcasting pairwise.
template <typename Op> static FailureOr<Value> chain(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  Value result = b.in(0);
  for (unsigned i = 1; i < b.operandCount(); ++i) {
    if (failed(b.need(i + 1)))
      return failure();
    if (b.element(i) != tensorType(result).getElementType())
      return b.fail() << "expected operands of one element type, got " << tensorType(result).getElementType() << " and "
                      << b.element(i);
    auto pair = b.broadcastPair(result, b.in(i));
    if (failed(pair))
      return failure();
    result = b.make<Op>(pair->first, pair->second);
  }
  return result;
}

template <typename Op> static LogicalResult binary(Binder &b) {
  FailureOr<Value> result = chain<Op>(b);
  return failed(result) ? failure() : b.done(*result);
}

template <typename Op> static LogicalResult variadic(Binder &b) {
  FailureOr<Value> result = chain<Op>(b);
  return failed(result) ? failure() : b.done(*result);
}

static LogicalResult importMean(Binder &b) {
  FailureOr<Value> sum = chain<AddOp>(b);
  return failed(sum) ? failure() : b.done(b.mul(*sum, 1.0 / b.operandCount()));
}

template <Predicate predicate> static LogicalResult comparison(Binder &b) {
  if (b.element(0) != b.element(1))
    return b.fail() << "expected operands of one element type, got " << b.element(0) << " and " << b.element(1);
  auto pair = b.broadcastPair(b.in(0), b.in(1));
  if (failed(pair))
    return failure();
  return b.done(b.compare(predicate, pair->first, pair->second));
}

static LogicalResult importMod(Binder &b) {
  if (b.element(0) != b.element(1))
    return b.fail() << "expected operands of one element type, got " << b.element(0) << " and " << b.element(1);
  bool fmod = b.intAttr("fmod", 0);
  auto pair = b.broadcastPair(b.in(0), b.in(1));
  if (failed(pair))
    return failure();
  auto [x, y] = *pair;
  Value rest = b.make<ModOp>(x, y);
  if (fmod || b.element(0).isUnsignedInteger())
    return b.done(rest);
  // Python's remainder has the divisor's sign: add it where the signs differ and the rest is not 0.
  Value differs = b.make<XorOp>(b.compare(Predicate::lt, rest, 0.0), b.compare(Predicate::lt, y, 0.0));
  Value wrong = b.make<AndOp>(differs, b.compare(Predicate::ne, rest, 0.0));
  return b.done(b.select(wrong, b.add(rest, y), rest));
}

/// Shifts by powers of two; distances outside of the type leave zeros, or copies of the sign to the right.
static LogicalResult importBitShift(Binder &b) {
  auto type = dyn_cast<IntegerType>(b.element(0));
  StringRef direction = b.stringAttr("direction", "");
  if (!type || b.element(1) != type || type.getWidth() < 8 || (direction != "LEFT" && direction != "RIGHT"))
    return b.fail() << "expected integers of one type and direction LEFT or RIGHT, got " << b.in(0).getType() << ", "
                    << b.in(1).getType() << " and '" << direction << "'";
  auto pair = b.broadcastPair(b.in(0), b.in(1));
  if (failed(pair))
    return failure();
  auto [x, distance] = *pair;
  bool isLeft = direction == "LEFT", isSigned = !type.isUnsigned();
  // The largest power of a signed type is negative; all shifts to the right by it and beyond leave the sign.
  int64_t count = type.getWidth() - (isSigned && !isLeft ? 1 : 0);
  SmallVector<APInt> powers;
  for (int64_t i = 0; i < count; ++i)
    powers.push_back(APInt::getOneBitSet(type.getWidth(), i));
  Value table = b.constant(DenseElementsAttr::get(RankedTensorType::get({count}, type), powers));
  Value beyond = b.compare(Predicate::ge, distance, static_cast<double>(count));
  if (isSigned)
    beyond = b.make<OrOp>(beyond, b.compare(Predicate::lt, distance, 0.0));
  Value zero = b.splatLike(x, 0), place = b.select(beyond, zero, distance);
  Value power = b.make<GatherOp>(table, b.cast(place, b.builder.getI64Type()), 0);
  if (isLeft)
    return b.done(b.select(beyond, zero, b.mul(x, power)));
  if (!isSigned)
    return b.done(b.select(beyond, zero, b.div(x, power)));
  // Division rounds to zero and the shift downward: the rest is taken off first.
  Value rest = b.make<ModOp>(b.add(b.make<ModOp>(x, power), power), power);
  Value sign = b.select(b.compare(Predicate::lt, x, 0.0), b.splatLike(x, -1), zero);
  return b.done(b.select(beyond, sign, b.div(b.sub(x, rest), power)));
}

/// Exponents of integers that are multiplied out, since FP64 rounds integers above 2^53.
constexpr int64_t mostSquared = 64;

static Value integerPower(Binder &b, Value base, int64_t exponent) {
  Value result, square = base;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2)
      result = result ? b.mul(result, square) : square;
    if (exponent > 1)
      square = b.mul(square, square);
  }
  return result ? result : b.splatLike(base, 1);
}

static LogicalResult importPow(Binder &b) {
  Value x = b.in(0);
  Type element = b.element(0);
  if (std::optional<double> exponent = b.given(1) ? uniformNumber(b.given(1)) : std::nullopt) {
    auto shape = b.broadcastShape(b.shape(0), b.shape(1));
    if (failed(shape))
      return failure();
    double value = *exponent;
    Value base = b.broadcastTo(x, *shape);
    if (value == 1)
      return b.done(base);
    if (value == 2)
      return b.done(b.mul(base, base));
    if (value == 3)
      return b.done(b.mul(b.mul(base, base), base));
    if (!b.isFloat(0) && value >= 0 && value <= mostSquared && value == std::floor(value))
      return b.done(integerPower(b, base, static_cast<int64_t>(value)));
    if (b.isFloat(0) && value == 0.5)
      return b.done(b.make<SqrtOp>(base));
    if (b.isFloat(0) && value == -1)
      return b.done(b.make<ReciprocalOp>(base));
    if (b.isFloat(0) && value == -0.5)
      return b.done(b.make<RsqrtOp>(base));
    if (b.isFloat(0) && value == 0)
      return b.done(b.splatLike(base, 1));
  }
  auto pair = b.broadcastPair(x, b.in(1));
  if (failed(pair))
    return failure();
  // The exponent may have another type than the base; the result has the base's.
  if (!b.isFloat(0)) {
    Value wide =
        b.make<PowOp>(b.cast(pair->first, b.builder.getF64Type()), b.cast(pair->second, b.builder.getF64Type()));
    return b.done(b.cast(wide, element));
  }
  return b.done(b.make<PowOp>(pair->first, b.cast(pair->second, element)));
}

static LogicalResult importWhere(Binder &b) {
  if (b.element(1) != b.element(2))
    return b.fail() << "expected both branches of one element type, got " << b.element(1) << " and " << b.element(2);
  auto shape = b.broadcastShape(b.shape(1), b.shape(2));
  if (succeeded(shape))
    shape = b.broadcastShape(b.shape(0), *shape);
  if (failed(shape))
    return failure();
  // A condition known to be one value everywhere picks its branch, so that the other one's graph can go.
  if (std::optional<double> condition = b.given(0) ? uniformNumber(b.given(0)) : std::nullopt)
    return b.done(b.broadcastTo(b.in(*condition != 0 ? 1 : 2), *shape));
  return b.done(
      b.select(b.broadcastTo(b.in(0), *shape), b.broadcastTo(b.in(1), *shape), b.broadcastTo(b.in(2), *shape)));
}

static LogicalResult clip(Binder &b, std::optional<double> low, std::optional<double> high) {
  Value x = b.in(0);
  if (!low && !high)
    return b.done(x);
  double infinity = std::numeric_limits<double>::infinity();
  return b.done(b.make<ClampOp>(x, b.f64(low.value_or(-infinity)), b.f64(high.value_or(infinity))));
}

static LogicalResult importClip6(Binder &b) {
  auto bound = [&](StringRef name) -> std::optional<double> {
    return b.attr(name) ? std::optional<double>(b.floatAttr(name, 0)) : std::nullopt;
  };
  return clip(b, bound("min"), bound("max"));
}

static LogicalResult importClip11(Binder &b) {
  StringRef names[] = {"lower bound", "upper bound"};
  bool isKnown = b.isFloat(0); // integers of 64 bits are more than FP64 holds
  for (unsigned i : {1u, 2u}) {
    if (b.has(i) && tensorType(b.in(i)).getNumElements() != 1)
      return b.fail() << "expected one number as " << names[i - 1] << ", got " << b.in(i).getType();
    isKnown &= !b.has(i) || b.given(i);
  }
  if (!isKnown) {
    Value x = b.in(0);
    auto bound = [&](unsigned i) { return b.broadcastTo(b.reshape(b.in(i), {}), b.shape(0)); };
    if (b.has(1))
      x = b.make<MaxOp>(x, bound(1));
    if (b.has(2))
      x = b.make<MinOp>(x, bound(2));
    return b.done(x);
  }
  std::optional<double> bounds[2];
  for (unsigned i : {1u, 2u}) {
    if (!b.has(i))
      continue;
    FailureOr<double> value = b.number(i, names[i - 1]);
    if (failed(value))
      return failure();
    bounds[i - 1] = *value;
  }
  return clip(b, bounds[0], bounds[1]);
}

template <typename Op, int alphaThousandths> static LogicalResult withAlpha(Binder &b) {
  return b.done(b.make<Op>(b.in(0).getType(), b.in(0), b.f64(b.floatAttr("alpha", alphaThousandths / 1000.0))));
}

static Value hardSigmoid(Binder &b, Value x, double alpha, double beta) {
  return b.make<HardSigmoidOp>(x.getType(), x, b.f64(alpha), b.f64(beta));
}

static LogicalResult importHardSigmoid(Binder &b) {
  return b.done(hardSigmoid(b, b.in(0), b.floatAttr("alpha", 0.2), b.floatAttr("beta", 0.5)));
}

static LogicalResult importHardSwish(Binder &b) {
  return b.done(b.mul(b.in(0), hardSigmoid(b, b.in(0), 1.0f / 6, 0.5)));
}

static LogicalResult importMish(Binder &b) {
  return b.done(b.mul(b.in(0), b.make<TanhOp>(b.make<SoftplusOp>(b.in(0)))));
}

static LogicalResult importSoftsign(Binder &b) { return b.done(b.div(b.in(0), b.add(b.make<AbsOp>(b.in(0)), 1.0))); }

static LogicalResult importSelu(Binder &b) {
  double alpha = b.floatAttr("alpha", 1.67326319217681884765625),
         gamma = b.floatAttr("gamma", 1.05070102214813232421875);
  Value elu = b.make<EluOp>(b.in(0).getType(), b.in(0), b.f64(alpha));
  return b.done(b.mul(elu, gamma));
}

static LogicalResult importCelu(Binder &b) {
  // max(x, 0) + min(0, alpha (e^(x / alpha) - 1)) is alpha elu(x / alpha).
  double alpha = b.floatAttr("alpha", 1);
  Value scaled = b.mul(b.in(0), 1 / alpha);
  return b.done(b.mul(b.make<EluOp>(scaled.getType(), scaled, b.f64(1)), alpha));
}

static LogicalResult importPRelu(Binder &b) {
  Value x = b.in(0);
  auto shape = b.broadcastShape(b.shape(0), b.shape(1));
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != b.shape(0))
    return b.fail() << "expected a slope that broadcasts to the input's shape, got [" << b.shape(1) << "]";
  Value slope = b.broadcastTo(b.in(1), *shape);
  return b.done(b.select(b.compare(Predicate::lt, x, 0.0), b.mul(x, slope), x));
}

static LogicalResult importIsInf(Binder &b) {
  bool negative = b.intAttr("detect_negative", 1), positive = b.intAttr("detect_positive", 1);
  Value infinite = b.make<IsInfOp>(b.in(0));
  if (negative && positive)
    return b.done(infinite);
  Value side = b.compare(positive ? Predicate::gt : Predicate::lt, b.in(0), 0.0);
  if (!negative && !positive)
    return b.done(b.splat(tensorType(infinite), 0));
  return b.done(b.make<AndOp>(infinite, side));
}

static LogicalResult importThresholdedRelu(Binder &b) {
  Value x = b.in(0);
  return b.done(b.select(b.compare(Predicate::gt, x, b.floatAttr("alpha", 1)), x, b.splatLike(x, 0)));
}

static LogicalResult importShrink(Binder &b) {
  double bias = b.floatAttr("bias", 0), threshold = b.floatAttr("lambd", 0.5);
  Value x = b.in(0);
  Value low = b.select(b.compare(Predicate::lt, x, -threshold), b.add(x, bias), b.splatLike(x, 0));
  return b.done(b.select(b.compare(Predicate::gt, x, threshold), b.add(x, -bias), low));
}

static LogicalResult importBinarizer(Binder &b) {
  return b.done(b.cast(b.compare(Predicate::gt, b.in(0), b.floatAttr("threshold", 0)), b.element(0)));
}

static LogicalResult importBiasAdd(Binder &b) {
  FailureOr<Value> x = b.plusOptional(b.in(0), 1);
  if (succeeded(x))
    x = b.plusOptional(*x, 2);
  return failed(x) ? failure() : b.done(*x);
}

/// A square has twice its operand's exponent.
static NumericClass classOfMul(onnx::NodeOp node) {
  bool isSquare = node.getInputs().size() == 2 && node.getInputs()[0] == node.getInputs()[1];
  return isSquare ? NumericClass::RangeExpanding : NumericClass::Neutral;
}

void mpt::addElementwiseRules(RuleTable &t) {
  t.on("Abs", 6, takes(1, unary<AbsOp>), {NumericClass::Movement, Arithmetic::Negates});
  t.on("Neg", 6, takes(1, unary<NegOp>), {NumericClass::Movement, Arithmetic::Negates});
  t.on("Sign", 9, takes(1, unary<SignOp>), {NumericClass::Movement, Arithmetic::Saturates});
  t.on("Floor", 6, takes(1, rounding<FloorOp>), {NumericClass::Movement, Arithmetic::Rounds});
  t.on("Ceil", 6, takes(1, rounding<CeilOp>), {NumericClass::Movement, Arithmetic::Rounds});
  t.on("Round", 11, takes(1, rounding<RoundOp>), {NumericClass::Movement, Arithmetic::Rounds});
  t.on("Relu", 6, takes(1, unary<ReluOp>), {NumericClass::Movement, Arithmetic::Clamps});
  t.on("Exp", 6, takes(1, unary<ExpOp>), {NumericClass::RangeExpanding, Arithmetic::Expands});
  t.on("Log", 6, takes(1, unary<LogOp>), {NumericClass::Neutral, Arithmetic::Diverges});
  t.on("Sqrt", 6, takes(1, unary<SqrtOp>), {NumericClass::Neutral, Arithmetic::Roots});
  t.on("Reciprocal", 6, takes(1, unary<ReciprocalOp>), {NumericClass::Neutral, Arithmetic::Inverts});
  t.on("Sin", 7, takes(1, unary<SinOp>), {NumericClass::Neutral, Arithmetic::Waves});
  t.on("Cos", 7, takes(1, unary<CosOp>), {NumericClass::Neutral, Arithmetic::Waves});
  t.on("Tanh", 6, takes(1, unary<TanhOp>), {NumericClass::Neutral, Arithmetic::Saturates});
  t.on("Sigmoid", 6, takes(1, unary<SigmoidOp>), {NumericClass::Neutral, Arithmetic::Saturates});
  t.on("Erf", 9, takes(1, unary<ErfOp>), {NumericClass::Neutral, Arithmetic::Saturates});
  t.on("Softplus", 1, takes(1, unary<SoftplusOp>), {NumericClass::RangeExpanding, Arithmetic::Grows});
  t.on({"Not", "BitwiseNot"}, 1, takes(1, unary<NotOp>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("IsNaN", 9, takes(1, unary<IsNaNOp>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("IsInf", 10, takes(1, importIsInf), {NumericClass::Movement, Arithmetic::Tests});
  t.on("Add", 7, takes(2, binary<AddOp>), NodeClass{NumericClass::Neutral, Arithmetic::Adds}.mayTrain());
  t.on("Sub", 7, takes(2, binary<SubOp>), NodeClass{NumericClass::Neutral, Arithmetic::Subtracts}.mayTrain());
  t.on("Mul", 7, takes(2, binary<MulOp>), NodeClass{classOfMul, Arithmetic::Multiplies}.mayTrain());
  t.on("Div", 7, takes(2, binary<DivOp>), NodeClass{NumericClass::Neutral, Arithmetic::Divides}.mayTrain());
  t.on({"And", "BitwiseAnd"}, 7, takes(2, binary<AndOp>), {NumericClass::Movement, Arithmetic::Tests});
  t.on({"Or", "BitwiseOr"}, 7, takes(2, binary<OrOp>), {NumericClass::Movement, Arithmetic::Tests});
  t.on({"Xor", "BitwiseXor"}, 7, takes(2, binary<XorOp>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("Sum", 6, variadic<AddOp>, {NumericClass::Neutral, Arithmetic::Adds});
  t.on("Max", 6, variadic<MaxOp>, {NumericClass::Movement, Arithmetic::Chooses});
  t.on("Min", 6, variadic<MinOp>, {NumericClass::Movement, Arithmetic::Chooses});
  t.on("Mean", 6, importMean, {NumericClass::Neutral, Arithmetic::Averages});
  t.on("Mod", 10, takes(2, importMod), {NumericClass::Neutral, Arithmetic::Remains});
  t.on("BitShift", 11, takes(2, importBitShift), NumericClass::Pinned);
  t.on("Pow", 7, takes(2, importPow), {NumericClass::RangeExpanding, Arithmetic::Expands});
  t.on("Equal", 7, takes(2, comparison<Predicate::eq>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("Less", 7, takes(2, comparison<Predicate::lt>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("LessOrEqual", 12, takes(2, comparison<Predicate::le>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("Greater", 7, takes(2, comparison<Predicate::gt>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("GreaterOrEqual", 12, takes(2, comparison<Predicate::ge>), {NumericClass::Movement, Arithmetic::Tests});
  t.on("Where", 9, takes(3, importWhere), {NumericClass::Movement, Arithmetic::Chooses});
  t.on("Clip", 6, takes(1, importClip6), {NumericClass::Movement, Arithmetic::Clamps});
  t.on("Clip", 11, takes(1, importClip11), {NumericClass::Movement, Arithmetic::Clamps});
  t.on("Gelu", 20, takes(1, importGelu), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("Elu", 6, takes(1, withAlpha<EluOp, 1000>), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("LeakyRelu", 6, takes(1, withAlpha<LeakyReluOp, 10>), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("Swish", 24, takes(1, withAlpha<SwishOp, 1000>), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("HardSigmoid", 6, takes(1, importHardSigmoid), {NumericClass::Neutral, Arithmetic::Saturates});
  t.on("HardSwish", 14, takes(1, importHardSwish), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("Mish", 18, takes(1, importMish), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("Softsign", 1, takes(1, importSoftsign), {NumericClass::Neutral, Arithmetic::Bounds});
  t.on("Selu", 6, takes(1, importSelu), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("Celu", 12, takes(1, importCelu), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("PRelu", 7, takes(2, importPRelu), NodeClass{NumericClass::Neutral, Arithmetic::Grows}.trains({1}));
  t.on("Shrink", 9, takes(1, importShrink), NumericClass::Neutral);
  t.on("ThresholdedRelu", 10, takes(1, importThresholdedRelu), {NumericClass::Neutral, Arithmetic::Grows});
  t.on("Tan", 7, importTan, NumericClass::RangeExpanding);
  t.on("Atan", 7, importAtan, NumericClass::Neutral);
  t.on("Asin", 7, importAsin, NumericClass::Neutral);
  t.on("Acos", 7, importAcos, NumericClass::Neutral);
  t.on("Sinh", 9, importSinh, NumericClass::RangeExpanding);
  t.on("Cosh", 9, importCosh, NumericClass::RangeExpanding);
  t.on("Asinh", 9, importAsinh, NumericClass::RangeExpanding);
  t.on("Acosh", 9, importAcosh, NumericClass::RangeExpanding);
  t.on("Atanh", 9, importAtanh, NumericClass::RangeExpanding);
  t.onDomain("ai.onnx.ml", "Binarizer", takes(1, importBinarizer), NumericClass::Movement);
  t.onDomain("com.microsoft", "Gelu", takes(1, importGelu), {NumericClass::Neutral, Arithmetic::Grows});
  t.onDomain("com.microsoft", "QuickGelu", takes(1, importQuickGelu), {NumericClass::Neutral, Arithmetic::Grows});
  t.onDomain("com.microsoft", "FastGelu", takes(1, importBiasGelu<GeluForm::tanh>),
             NodeClass{NumericClass::Neutral, Arithmetic::Grows}.trains({1}));
  t.onDomain("com.microsoft", "BiasGelu", takes(1, importBiasGelu<GeluForm::erf>),
             NodeClass{NumericClass::Neutral, Arithmetic::Grows}.trains({1}));
  t.onDomain("com.microsoft", "BiasSplitGelu", takes(2, importBiasSplitGelu),
             NodeClass(NumericClass::Neutral).trains({1}));
  t.onDomain("com.microsoft", "BiasAdd", takes(3, importBiasAdd), NodeClass(NumericClass::Neutral).trains({1}));
  // Imported as the functions by which ONNX defines them.
  StringRef function = "expected a node whose ONNX function can be expanded";
  t.noRule("RotaryEmbedding", NumericClass::Neutral, function);
  t.noRule("SwiGLU", NumericClass::Neutral, function);
}
