// SPDX-License-Identifier: Apache-2.0
// Loop lowering of the elementwise family.
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

using Emit = Value (*)(MathBuilder &, ArrayRef<Value>, Operation *);

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value)); }
bool isBool(Value value) { return getElementTypeOrSelf(value).isInteger(1); }
/// Unsigned numbers of 64 bits have no wider type to be held in, where they would not be negative.
bool isWord(Operation *op) { return getElementTypeOrSelf(op->getOperand(0).getType()).isUnsignedInteger(64); }
/// The integer in every element of a constant; through broadcasts.
std::optional<APInt> integerIn(Value value) {
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return integerIn(broadcast.getX());
  DenseIntElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat())
    return std::nullopt;
  return elements.getSplatValue<APInt>();
}

/// Operands at the op's own index, made of one width, and the result rounded to its type.
Value emitPointwise(Emit emit, Operation *op, ElementEmitter &e, ArrayRef<IndexExpr> at) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(e.element(operand, at));
  e.unify(operands);
  MathBuilder m(e);
  Value result = emit(m, operands, op);
  return result ? e.round(result, getElementTypeOrSelf(op->getResult(0).getType())) : Value();
}

template <typename Op, Emit emit, bool cheap>
struct Pointwise : LoopLowering::ExternalModel<Pointwise<Op, emit, cheap>, Op> {
  bool isCheap(Operation *) const { return cheap; }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    return emitPointwise(emit, op, e, at);
  }
};

template <typename FloatOp, typename IntOp> Value binary(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  ImplicitLocOpBuilder &b = m.emitter().b;
  if (isFloat(x[0]))
    return FloatOp::create(b, x[0], x[1]);
  return IntOp::create(b, x[0], x[1]);
}
/// Integer division that never traps: by 0 gives 0, and overflow wraps.
template <typename FloatOp, typename IntOp, typename UnsignedOp>
Value division(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  ElementEmitter &e = m.emitter();
  if (isFloat(x[0]))
    return FloatOp::create(e.b, x[0], x[1]);
  auto divide = [&](Value by) -> Value {
    if (isWord(op))
      return UnsignedOp::create(e.b, x[0], by);
    return IntOp::create(e.b, x[0], by);
  };
  std::optional<APInt> number = integerIn(op->getOperand(1));
  if (number && !number->isZero() && !number->isAllOnes())
    return divide(x[1]);
  auto is = [&](const APInt &n) -> Value {
    return arith::CmpIOp::create(e.b, arith::CmpIPredicate::eq, x[1], e.constantLike(x[1], n));
  };
  Value zero = e.constantLike(x[0], 0.0), isSpecial = is(APInt(64, 0)), special = zero;
  if (!isWord(op)) {
    Value isMinus = is(APInt::getAllOnes(64));
    isSpecial = arith::OrIOp::create(e.b, isSpecial, isMinus);
    if (std::is_same_v<IntOp, arith::DivSIOp>)
      special = arith::SelectOp::create(e.b, isMinus, Value(arith::SubIOp::create(e.b, zero, x[0])), zero);
  }
  Value safe = arith::SelectOp::create(e.b, isSpecial, e.constantLike(x[1], 1.0), x[1]);
  return arith::SelectOp::create(e.b, isSpecial, special, divide(safe));
}
template <typename IntOp> Value bitwise(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  return IntOp::create(m.emitter().b, x[0], x[1]);
}

/// Math functions are of floats only.
template <Value (MathBuilder::*function)(Value)> Value call(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  return (m.*function)(x[0]);
}

Value emitAbs(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  if (isFloat(x[0]))
    return m.abs(x[0]);
  if (isWord(op))
    return x[0];
  return math::AbsIOp::create(m.emitter().b, x[0]);
}
Value emitNeg(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  if (isFloat(x[0]))
    return m.neg(x[0]);
  return arith::SubIOp::create(m.emitter().b, m.emitter().constantLike(x[0], 0.0), x[0]);
}
Value emitSign(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  ElementEmitter &e = m.emitter();
  if (isFloat(x[0])) {
    Value unit = m.copySign(m.c(x[0], 1.0), x[0]);
    return m.select(m.compare(arith::CmpFPredicate::ONE, x[0], m.c(x[0], 0)), unit, x[0]);
  }
  Value zero = e.constantLike(x[0], 0.0), one = e.constantLike(x[0], 1.0);
  if (isWord(op))
    return arith::MinUIOp::create(e.b, x[0], one);
  Value low = arith::MinSIOp::create(e.b, x[0], one);
  return arith::MaxSIOp::create(e.b, low, arith::SubIOp::create(e.b, zero, one));
}
template <typename FloatOp> Value floatOrSame(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  return isFloat(x[0]) ? Value(FloatOp::create(m.emitter().b, x[0])) : x[0];
}
Value emitRelu(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  ElementEmitter &e = m.emitter();
  Value zero = e.constantLike(x[0], 0.0);
  if (isFloat(x[0]))
    return m.select(m.compare(arith::CmpFPredicate::OLT, x[0], zero), zero, x[0]);
  if (isWord(op))
    return x[0];
  return arith::MaxSIOp::create(e.b, x[0], zero);
}
/// Good for the digits of 8 bits, where fusion-decompose leaves GELU whole.
Value emitGelu(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  return m.coarseGelu(x[0], cast<GeluOp>(op).getForm() == GeluForm::tanh);
}
Value emitReciprocal(MathBuilder &m, ArrayRef<Value> x, Operation *) { return m.div(m.c(x[0], 1.0), x[0]); }
Value emitNot(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  ElementEmitter &e = m.emitter();
  return arith::XOrIOp::create(e.b, x[0], e.constantLike(x[0], APInt::getAllOnes(64)));
}
Value emitIsNaN(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  ElementEmitter &e = m.emitter();
  if (!isFloat(x[0]))
    return e.splat(e.constant(e.b.getI1Type(), 0), e.width(x[0]));
  return m.compare(arith::CmpFPredicate::UNO, x[0], x[0]);
}
Value emitIsInf(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  ElementEmitter &e = m.emitter();
  if (!isFloat(x[0]))
    return e.splat(e.constant(e.b.getI1Type(), 0), e.width(x[0]));
  return m.compare(arith::CmpFPredicate::OEQ, m.abs(x[0]), m.c(x[0], INFINITY));
}
Value emitIsFinite(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  ElementEmitter &e = m.emitter();
  if (!isFloat(x[0]))
    return e.splat(e.constant(e.b.getI1Type(), 1), e.width(x[0]));
  return m.compare(arith::CmpFPredicate::OLT, m.abs(x[0]), m.c(x[0], INFINITY));
}
Value emitElu(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  Value tail = m.mul(m.expm1(m.min(x[0], m.c(x[0], 0))), cast<EluOp>(op).getAlpha().convertToDouble());
  return m.select(m.greater(x[0], 0), x[0], tail);
}
Value emitLeakyRelu(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  Value scaled = m.mul(x[0], cast<LeakyReluOp>(op).getAlpha().convertToDouble());
  return m.select(m.compare(arith::CmpFPredicate::OGE, x[0], m.c(x[0], 0)), x[0], scaled);
}
Value emitHardSigmoid(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  auto hard = cast<HardSigmoidOp>(op);
  Value line = m.add(m.mul(x[0], hard.getAlpha().convertToDouble()), hard.getBeta().convertToDouble());
  return m.max(m.c(line, 0), m.min(m.c(line, 1), line));
}
Value emitClamp(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  ElementEmitter &e = m.emitter();
  auto clamp = cast<ClampOp>(op);
  double low = clamp.getLow().convertToDouble(), high = clamp.getHigh().convertToDouble();
  if (isFloat(x[0]))
    return m.min(m.max(x[0], m.c(x[0], low)), m.c(x[0], high));
  // Bounds beyond the integer type do not bind.
  if (isWord(op)) {
    Value value = x[0];
    auto word = [&](double bound) { return e.constantLike(value, APInt(64, static_cast<uint64_t>(bound))); };
    if (low > 0 && low < 0x1p64)
      value = arith::MaxUIOp::create(e.b, value, word(low));
    return high < 0x1p64 ? Value(arith::MinUIOp::create(e.b, value, word(std::max(high, 0.0)))) : value;
  }
  unsigned bits = getElementTypeOrSelf(x[0]).getIntOrFloatBitWidth();
  double least = -std::ldexp(1.0, bits - 1), most = std::ldexp(1.0, bits - 1);
  Value value = x[0];
  if (low > least)
    value = arith::MaxSIOp::create(e.b, value, e.constantLike(value, low));
  if (high < most)
    value = arith::MinSIOp::create(e.b, value, e.constantLike(value, high));
  return value;
}
Value emitPow(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  if (!isFloat(x[0]))
    return m.emitter().fail(op, "expected floats, got a power of integers; cast to a float type first",
                            getElementTypeOrSelf(x[0]));
  // Exponents that are constants of the graph have cheap exact forms.
  Attribute exponent;
  Value constant = op->getOperand(1);
  if (auto broadcast = constant.getDefiningOp<BroadcastOp>())
    constant = broadcast.getX();
  auto elements = matchPattern(constant, m_Constant(&exponent)) ? dyn_cast<DenseFPElementsAttr>(exponent) : nullptr;
  if (elements && elements.isSplat()) {
    double p = elements.getSplatValue<APFloat>().convertToDouble();
    if (p == 1)
      return x[0];
    if (p == 2)
      return m.mul(x[0], x[0]);
    if (p == 3)
      return m.mul(m.mul(x[0], x[0]), x[0]);
    if (p == -1)
      return m.div(m.c(x[0], 1), x[0]);
  }
  return m.pow(x[0], x[1]);
}
Value emitReluBackward(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  return m.select(m.greater(x[1], 0), x[0], m.c(x[0], 0));
}
Value emitTanhBackward(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  return m.mul(x[0], m.sub(m.c(x[1], 1), m.mul(x[1], x[1])));
}
Value emitSigmoidBackward(MathBuilder &m, ArrayRef<Value> x, Operation *) {
  return m.mul(x[0], m.mul(x[1], m.sub(m.c(x[1], 1), x[1])));
}
Value emitCompare(MathBuilder &m, ArrayRef<Value> x, Operation *op) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  static constexpr F floats[] = {F::OEQ, F::UNE, F::OLT, F::OLE, F::OGT, F::OGE};
  static constexpr I ints[] = {I::eq, I::ne, I::slt, I::sle, I::sgt, I::sge};
  static constexpr I unsignedInts[] = {I::eq, I::ne, I::ult, I::ule, I::ugt, I::uge};
  unsigned predicate = static_cast<unsigned>(cast<CompareOp>(op).getPredicate());
  if (isFloat(x[0]))
    return m.compare(floats[predicate], x[0], x[1]);
  return arith::CmpIOp::create(m.emitter().b, isBool(x[0]) || isWord(op) ? unsignedInts[predicate] : ints[predicate],
                               x[0], x[1]);
}
Value emitSelect(MathBuilder &m, ArrayRef<Value> x, Operation *) { return m.select(x[0], x[1], x[2]); }
Value emitMaxMin(MathBuilder &m, ArrayRef<Value> x, Operation *op, bool max) {
  ImplicitLocOpBuilder &b = m.emitter().b;
  if (isFloat(x[0]))
    return max ? m.max(x[0], x[1]) : m.min(x[0], x[1]);
  if (isBool(x[0]) || isWord(op))
    return max ? Value(arith::MaxUIOp::create(b, x[0], x[1])) : Value(arith::MinUIOp::create(b, x[0], x[1]));
  return max ? Value(arith::MaxSIOp::create(b, x[0], x[1])) : Value(arith::MinSIOp::create(b, x[0], x[1]));
}
Value emitMax(MathBuilder &m, ArrayRef<Value> x, Operation *op) { return emitMaxMin(m, x, op, true); }
Value emitMin(MathBuilder &m, ArrayRef<Value> x, Operation *op) { return emitMaxMin(m, x, op, false); }

/// Whether all readers add a number to `op`, or to its square, or subtract from one, that is 1 or more: they see errors
/// relative to 1 alone.
bool meetsOne(Operation *op) {
  auto isLarge = [](Value value) {
    std::optional<double> number = splatNumber(value);
    return number && std::abs(*number) >= 1;
  };
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    bool isSquare = isa<MulOp>(user) && user->getOperand(0) == user->getOperand(1);
    if (isSquare || isa<NegOp>(user))
      return meetsOne(user);
    return isa<AddOp, SubOp>(user) && (isLarge(user->getOperand(0)) || isLarge(user->getOperand(1)));
  });
}
Value emitTanh(MathBuilder &m, ArrayRef<Value> x, Operation *op) { return m.tanh(x[0], meetsOne(op)); }
Value emitErf(MathBuilder &m, ArrayRef<Value> x, Operation *op) { return m.erf(x[0], meetsOne(op)); }

template <typename Op, Emit emit, bool cheap = true> void attach(MLIRContext *context) {
  Op::template attachInterface<Pointwise<Op, emit, cheap>>(*context);
}

} // namespace

void mpt::attachElementwiseModels(MLIRContext *context) {
  attach<AbsOp, emitAbs>(context);
  attach<NegOp, emitNeg>(context);
  attach<SignOp, emitSign>(context);
  attach<FloorOp, floatOrSame<math::FloorOp>>(context);
  attach<CeilOp, floatOrSame<math::CeilOp>>(context);
  attach<RoundOp, floatOrSame<math::RoundEvenOp>>(context);
  attach<ReluOp, emitRelu>(context);
  attach<ExpOp, call<&MathBuilder::exp>, false>(context);
  attach<LogOp, call<&MathBuilder::log>, false>(context);
  attach<SqrtOp, call<&MathBuilder::sqrt>, false>(context);
  attach<RsqrtOp, call<&MathBuilder::rsqrt>, false>(context);
  attach<ReciprocalOp, emitReciprocal, false>(context);
  attach<SinOp, call<&MathBuilder::sin>, false>(context);
  attach<CosOp, call<&MathBuilder::cos>, false>(context);
  attach<TanhOp, emitTanh, false>(context);
  attach<SigmoidOp, call<&MathBuilder::sigmoid>, false>(context);
  attach<ErfOp, emitErf, false>(context);
  attach<GeluOp, emitGelu, false>(context);
  attach<SoftplusOp, call<&MathBuilder::softplus>, false>(context);
  attach<NotOp, emitNot>(context);
  attach<IsNaNOp, emitIsNaN>(context);
  attach<IsInfOp, emitIsInf>(context);
  attach<IsFiniteOp, emitIsFinite>(context);
  attach<EluOp, emitElu, false>(context);
  attach<LeakyReluOp, emitLeakyRelu>(context);
  attach<HardSigmoidOp, emitHardSigmoid>(context);
  attach<ClampOp, emitClamp>(context);
  attach<AddOp, binary<arith::AddFOp, arith::AddIOp>>(context);
  attach<SubOp, binary<arith::SubFOp, arith::SubIOp>>(context);
  attach<MulOp, binary<arith::MulFOp, arith::MulIOp>>(context);
  attach<DivOp, division<arith::DivFOp, arith::DivSIOp, arith::DivUIOp>, false>(context);
  attach<ModOp, division<arith::RemFOp, arith::RemSIOp, arith::RemUIOp>, false>(context);
  attach<PowOp, emitPow, false>(context);
  attach<MaxOp, emitMax>(context);
  attach<MinOp, emitMin>(context);
  attach<AndOp, bitwise<arith::AndIOp>>(context);
  attach<OrOp, bitwise<arith::OrIOp>>(context);
  attach<XorOp, bitwise<arith::XOrIOp>>(context);
  attach<ReluBackwardOp, emitReluBackward>(context);
  attach<TanhBackwardOp, emitTanhBackward>(context);
  attach<SigmoidBackwardOp, emitSigmoidBackward>(context);
  attach<CompareOp, emitCompare>(context);
  attach<SelectOp, emitSelect>(context);
}
