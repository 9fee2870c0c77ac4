// SPDX-License-Identifier: Apache-2.0
// Elementwise family: each result is the real-valued function in FP64, rounded once to the result type.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

double real(const llvm::APFloat &value) { return value.convertToDouble(); }
double gate(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
bool isNaN(double x) { return std::isnan(x); }

double compute(AbsOp, double x) { return std::fabs(x); }
int64_t compute(AbsOp, int64_t x) { return x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x; }
double compute(NegOp, double x) { return -x; }
int64_t compute(NegOp, int64_t x) { return static_cast<int64_t>(-static_cast<uint64_t>(x)); }
double compute(SignOp, double x) { return isNaN(x) ? x : x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; }
int64_t compute(SignOp, int64_t x) { return (x > 0) - (x < 0); }
double compute(FloorOp, double x) { return std::floor(x); }
int64_t compute(FloorOp, int64_t x) { return x; }
double compute(CeilOp, double x) { return std::ceil(x); }
int64_t compute(CeilOp, int64_t x) { return x; }
double compute(RoundOp, double x) { return std::nearbyint(x); }
int64_t compute(RoundOp, int64_t x) { return x; }
double compute(ReluOp, double x) { return x > 0 || isNaN(x) ? x : 0.0; }
int64_t compute(ReluOp, int64_t x) { return std::max<int64_t>(x, 0); }
double compute(ExpOp, double x) { return std::exp(x); }
double compute(LogOp, double x) { return std::log(x); }
double compute(SqrtOp, double x) { return std::sqrt(x); }
double compute(RsqrtOp, double x) { return 1 / std::sqrt(x); }
double compute(ReciprocalOp, double x) { return 1 / x; }
double compute(SinOp, double x) { return std::sin(x); }
double compute(CosOp, double x) { return std::cos(x); }
double compute(TanhOp, double x) { return std::tanh(x); }
double compute(SigmoidOp, double x) { return gate(x); }
double compute(ErfOp, double x) { return std::erf(x); }
double compute(SoftplusOp, double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
int64_t compute(NotOp, int64_t x) { return ~x; }
double compute(EluOp op, double x) { return x > 0 ? x : real(op.getAlpha()) * std::expm1(x); }
double compute(LeakyReluOp op, double x) { return x >= 0 ? x : real(op.getAlpha()) * x; }
double compute(HardSigmoidOp op, double x) {
  double y = real(op.getAlpha()) * x + real(op.getBeta());
  return isNaN(y) ? y : std::max(0.0, std::min(1.0, y));
}
double compute(ClampOp op, double x) {
  return isNaN(x) ? x : std::min(std::max(x, real(op.getLow())), real(op.getHigh()));
}
/// `x` as the nearest number of a type; bounds of clamp may lie beyond it.
template <typename Element> Element nearest(double x) {
  constexpr double top = std::is_signed_v<Element> ? 0x1p63 : 0x1p64;
  if (x >= top)
    return std::numeric_limits<Element>::max();
  return x <= (std::is_signed_v<Element> ? -0x1p63 : 0) ? std::numeric_limits<Element>::min() : static_cast<Element>(x);
}
template <typename Element> Element limit(ClampOp op, Element x) {
  return std::min(std::max(x, nearest<Element>(real(op.getLow()))), nearest<Element>(real(op.getHigh())));
}
int64_t compute(ClampOp op, int64_t x) { return limit(op, x); }
double compute(GeluOp op, double x) {
  if (op.getForm() == GeluForm::erf)
    return 0.5 * x * std::erfc(-x * M_SQRT1_2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double compute(AddOp, double a, double b) { return a + b; }
double compute(SubOp, double a, double b) { return a - b; }
double compute(MulOp, double a, double b) { return a * b; }
double compute(DivOp, double a, double b) { return a / b; }
double compute(ModOp, double a, double b) { return std::fmod(a, b); }
double compute(PowOp, double a, double b) { return std::pow(a, b); }
double compute(MaxOp, double a, double b) { return isNaN(a) ? a : isNaN(b) ? b : std::max(a, b); }
double compute(MinOp, double a, double b) { return isNaN(a) ? a : isNaN(b) ? b : std::min(a, b); }
// Integer arithmetic wraps; unsigned arithmetic does that without undefined behaviour.
int64_t compute(AddOp, int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) + uint64_t(b)); }
int64_t compute(SubOp, int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) - uint64_t(b)); }
int64_t compute(MulOp, int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) * uint64_t(b)); }
int64_t compute(DivOp, int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? compute(SubOp(), int64_t(0), a) : a / b; }
int64_t compute(ModOp, int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t compute(MaxOp, int64_t a, int64_t b) { return std::max(a, b); }
int64_t compute(MinOp, int64_t a, int64_t b) { return std::min(a, b); }
int64_t compute(AndOp, int64_t a, int64_t b) { return a & b; }
int64_t compute(OrOp, int64_t a, int64_t b) { return a | b; }
int64_t compute(XorOp, int64_t a, int64_t b) { return a ^ b; }
double compute(ReluBackwardOp, double dy, double y) { return y > 0 ? dy : 0.0; }
double compute(TanhBackwardOp, double dy, double y) { return dy * (1 - y * y); }
double compute(SigmoidBackwardOp, double dy, double y) { return dy * (y * (1 - y)); }

/// The same on integers of 64 bits without sign: most ops do not tell.
template <typename Op> uint64_t computeWord(Op op, uint64_t x) {
  return static_cast<uint64_t>(compute(op, static_cast<int64_t>(x)));
}
uint64_t computeWord(AbsOp, uint64_t x) { return x; }
uint64_t computeWord(ClampOp op, uint64_t x) { return limit(op, x); }
uint64_t computeWord(ReluOp, uint64_t x) { return x; }
uint64_t computeWord(SignOp, uint64_t x) { return x != 0; }
template <typename Op> uint64_t computeWord(Op op, uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(compute(op, static_cast<int64_t>(a), static_cast<int64_t>(b)));
}
uint64_t computeWord(DivOp, uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
uint64_t computeWord(ModOp, uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
uint64_t computeWord(MaxOp, uint64_t a, uint64_t b) { return std::max(a, b); }
uint64_t computeWord(MinOp, uint64_t a, uint64_t b) { return std::min(a, b); }

/// Rules of ops on floats alone, on integers alone, and on both.
template <typename Op, typename Element>
constexpr bool unaryRule = std::is_same_v<decltype(compute(std::declval<Op>(), Element())), Element>;
template <typename Op, typename Element>
constexpr bool binaryRule = std::is_same_v<decltype(compute(std::declval<Op>(), Element(), Element())), Element>;

LogicalResult noRule(Operation *op) {
  return op->emitOpError() << "expected another element type: the reference interpreter has no rule for "
                           << op->getOperand(0).getType();
}

template <typename Op> LogicalResult unary(Op op, InterpreterFrame &frame) {
  if (frame.computed(op))
    return success();
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  if (y.isFloat()) {
    if constexpr (!unaryRule<Op, double>)
      return noRule(op);
    for (auto [in, out] : llvm::zip_equal(x.reals(), y.writeReals()))
      out = compute(op, in);
  } else {
    if constexpr (!unaryRule<Op, int64_t>) {
      return noRule(op);
    } else if (x.isUnsigned64()) {
      for (auto [in, out] : llvm::zip_equal(x.words(), y.writeInts()))
        out = static_cast<int64_t>(computeWord(op, in));
    } else {
      for (auto [in, out] : llvm::zip_equal(x.ints(), y.writeInts()))
        out = compute(op, in);
    }
  }
  frame.set(op.getY(), std::move(y));
  return success();
}

template <typename Op> LogicalResult binary(Op op, InterpreterFrame &frame) {
  if (frame.computed(op))
    return success();
  const Tensor &a = frame.get(op.getLhs()), &b = frame.get(op.getRhs());
  Tensor y = frame.zeros(op.getY());
  if (y.isFloat()) {
    if constexpr (!binaryRule<Op, double>)
      return noRule(op);
    else
      for (auto [l, r, out] : llvm::zip_equal(a.reals(), b.reals(), y.writeReals()))
        out = compute(op, l, r);
  } else {
    if constexpr (!binaryRule<Op, int64_t>) {
      for (auto [l, r, out] : llvm::zip_equal(a.ints(), b.ints(), y.writeInts()))
        out = static_cast<int64_t>(compute(op, static_cast<double>(l), static_cast<double>(r)));
    } else {
      if (a.isUnsigned64())
        for (auto [l, r, out] : llvm::zip_equal(a.words(), b.words(), y.writeInts()))
          out = static_cast<int64_t>(computeWord(op, l, r));
      else
        for (auto [l, r, out] : llvm::zip_equal(a.ints(), b.ints(), y.writeInts()))
          out = compute(op, l, r);
    }
  }
  frame.set(op.getY(), std::move(y));
  return success();
}

/// Kernels compute its decomposition.
LogicalResult interpretGelu(GeluOp op, InterpreterFrame &frame) {
  return frame.ordersSums() ? interpretDecomposition(op, frame) : unary(op, frame);
}

template <typename... Ops> void attachUnary(MLIRContext *context) {
  (attachRule<Ops, unary<Ops>, AccessPattern::Pointwise>(context), ...);
}
template <typename... Ops> void attachBinary(MLIRContext *context) {
  (attachRule<Ops, binary<Ops>, AccessPattern::Pointwise>(context), ...);
}

bool holds(IsNaNOp, double x) { return std::isnan(x); }
bool holds(IsInfOp, double x) { return std::isinf(x); }
bool holds(IsFiniteOp, double x) { return std::isfinite(x); }

template <typename Op> LogicalResult test(Op op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  // Integers are numbers, and finite.
  if (x.isFloat())
    llvm::transform(x.reals(), y.writeInts().begin(), [&](double value) { return holds(op, value); });
  else
    std::fill_n(y.writeInts().begin(), y.size(), holds(op, 0.0));
  frame.set(op.getY(), std::move(y));
  return success();
}

/// Calls fn(the comparison that `predicate` names).
template <typename Fn> void withPredicate(Predicate predicate, Fn fn) {
  switch (predicate) {
  case Predicate::eq:
    return fn(std::equal_to<>());
  case Predicate::ne:
    return fn(std::not_equal_to<>());
  case Predicate::lt:
    return fn(std::less<>());
  case Predicate::le:
    return fn(std::less_equal<>());
  case Predicate::gt:
    return fn(std::greater<>());
  case Predicate::ge:
    return fn(std::greater_equal<>());
  }
}

LogicalResult interpretCompare(CompareOp op, InterpreterFrame &frame) {
  const Tensor &a = frame.get(op.getLhs()), &b = frame.get(op.getRhs());
  Tensor y = frame.zeros(op.getY());
  MutableArrayRef<int64_t> out = y.writeInts();
  withPredicate(op.getPredicate(), [&](auto holds) {
    auto compareAll = [&](auto l, auto r) { std::transform(l.begin(), l.end(), r.begin(), out.begin(), holds); };
    if (a.isFloat())
      compareAll(a.reals(), b.reals());
    else if (a.isUnsigned64())
      compareAll(a.words(), b.words());
    else
      compareAll(a.ints(), b.ints());
  });
  frame.set(op.getY(), std::move(y));
  return success();
}

LogicalResult interpretSelect(SelectOp op, InterpreterFrame &frame) {
  ArrayRef<int64_t> condition = frame.get(op.getCondition()).ints();
  const Tensor &otherwise = frame.get(op.getOnFalse());
  Tensor y = frame.get(op.getOnTrue());
  withElements(otherwise, y, [&](auto in, auto out) {
    for (size_t i = 0; i < condition.size(); ++i)
      if (!condition[i])
        out[i] = in[i];
  });
  frame.set(op.getY(), std::move(y));
  return success();
}

} // namespace

void mpt::attachElementwiseRules(MLIRContext *context) {
  attachUnary<AbsOp, NegOp, SignOp, FloorOp, CeilOp, RoundOp, ReluOp, ExpOp, LogOp, SqrtOp, RsqrtOp, ReciprocalOp,
              SinOp, CosOp, TanhOp, SigmoidOp, ErfOp, SoftplusOp, NotOp, EluOp, LeakyReluOp, HardSigmoidOp, ClampOp>(
      context);
  attachRule<GeluOp, interpretGelu, AccessPattern::Pointwise>(context);
  attachBinary<AddOp, SubOp, MulOp, DivOp, ModOp, PowOp, MaxOp, MinOp, AndOp, OrOp, XorOp, ReluBackwardOp,
               TanhBackwardOp, SigmoidBackwardOp>(context);
  attachDecompositions<SwishOp, GeluBackwardOp>(context);
  attachRule<IsNaNOp, test<IsNaNOp>, AccessPattern::Pointwise>(context);
  attachRule<IsInfOp, test<IsInfOp>, AccessPattern::Pointwise>(context);
  attachRule<IsFiniteOp, test<IsFiniteOp>, AccessPattern::Pointwise>(context);
  attachRule<CompareOp, interpretCompare, AccessPattern::Pointwise>(context);
  attachRule<SelectOp, interpretSelect, AccessPattern::Pointwise>(context);
}
