// SPDX-License-Identifier: Apache-2.0
// Conversions, exponentials and quotients of f32 by the instructions of an architecture.
// Matcher: the ops that KernelTarget::keepsFloatOps leaves whole, each with its instructions.
#include "ToNvvm.h"

#include "mpt/Lowering/Emission/FloatOps.h"
#include "mpt/Lowering/Emission/ValueBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Instructions for one op, where it stands.
class Lowering {
public:
  /// `coarse`: an exponential of a value that was rounded to a narrow type before.
  Lowering(Operation *op, unsigned sm, bool coarse)
      : op(op), sm(sm), coarse(coarse), b(op->getLoc(), op), e(b, target) {}

  /// The same of two numbers of 16 bits, of a rounding to 16 bits; before either is widened.
  Value narrowArithmetic();
  /// FP32 to 8 bits by FP16 and whole words; null elsewhere.
  Value packedFloat8();
  /// The value in the op's place, or null where it stays as it is.
  Value lowered();

private:
  using Pair = llvm::function_ref<Value(Value low, Value high)>;
  SmallVector<Value> lanesOf(Value value);
  Value join(ArrayRef<Value> lanes, Type type);
  Value intrinsic(StringRef name, ValueRange arguments) {
    return LLVM::CallIntrinsicOp::create(b, b.getF32Type(), b.getStringAttr(name), arguments).getResults();
  }
  Value f32(double value) { return e.constant(b.getF32Type(), value); }
  Value number(uint32_t value) {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  Value bits(Value value, Type type) { return arith::BitcastOp::create(b, type, value); }
  Value fma(Value x, Value y, Value z) { return math::FmaOp::create(b, x, y, z); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  /// 2^x to two places; 0 for results below normal numbers.
  Value ex2(Value x) { return intrinsic("llvm.nvvm.ex2.approx.ftz", x); }

  Value inPairs(Value value, Type type, Type piece, Pair convert);
  Value widenBFloat16(Value value);
  Value widenFloat8(Value value);
  Value narrowFloat8(Value value, Type type);
  Value narrowPairs(Value value, Type type);
  Value exp(Value x);
  Value coarseExp(Value x);
  Value divide(arith::DivFOp div);
  Value divideAll(ArrayRef<Value> x, Value y, Type type, bool exact);
  Value refined(Value x, Value y, Value quotient, Value reciprocal);

  Operation *op;
  unsigned sm;
  bool coarse;
  ImplicitLocOpBuilder b;
  KernelTarget target;
  ValueBuilder e;
};

bool isFloat8(Type type) { return isa<Float8E4M3FNType, Float8E5M2Type>(type); }

/// Whether a difference in the last place of an f32 may show: it is stored as one, or meets a step function.
bool showsLastPlace(Value value, llvm::DenseSet<Operation *> &seen) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    // Rounding hides it, and sums do: they go on in FP64 or between threads.
    if (!seen.insert(user).second || isa<arith::TruncFOp, arith::ExtFOp, NVVM::ShflOp>(user))
      return false;
    if (isa<math::FloorOp, math::CeilOp, math::RoundOp, math::RoundEvenOp, math::TruncOp, arith::FPToSIOp,
            arith::FPToUIOp, arith::BitcastOp>(user) ||
        (user->getNumResults() == 0 && hasEffect<MemoryEffects::Write>(user)))
      return true;
    return llvm::any_of(user->getResults(), [&](Value result) {
      return isa<FloatType>(getElementTypeOrSelf(result)) && showsLastPlace(result, seen);
    });
  });
}

/// Whether `value` is computed of one that was narrower than f32, in few steps.
bool isOfNarrow(Value value, unsigned steps = 8) {
  Operation *op = value.getDefiningOp();
  if (!op || steps == 0)
    return false;
  if (auto widen = dyn_cast<arith::ExtFOp>(op))
    return getElementTypeOrSelf(widen.getIn()).getIntOrFloatBitWidth() < 32;
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return getElementTypeOrSelf(operand).isF32() && isOfNarrow(operand, steps - 1);
  });
}

/// The exponentials whose argument carries a rounding to 16 bits or fewer, and whose own last places nobody sees. Half
/// a place of x log2(e) moves e^x by |x| 2^-24 of itself; the rounding of x before moved it by |x| 2^-12 or more.
llvm::DenseSet<Operation *> coarseExponentials(Operation *kernels) {
  llvm::DenseSet<Operation *> found;
  kernels->walk([&](math::ExpOp exp) {
    llvm::DenseSet<Operation *> seen;
    if (isOfNarrow(exp.getOperand()) && !showsLastPlace(exp, seen))
      found.insert(exp);
  });
  return found;
}

} // namespace

SmallVector<Value> Lowering::lanesOf(Value value) {
  if (ValueBuilder::width(value) == 1 && !isa<VectorType>(value.getType()))
    return {value};
  SmallVector<Value> lanes;
  for (unsigned i = 0, n = ValueBuilder::width(value); i < n; ++i)
    lanes.push_back(vector::ExtractOp::create(b, value, static_cast<int64_t>(i)));
  return lanes;
}

Value Lowering::join(ArrayRef<Value> lanes, Type type) {
  return isa<VectorType>(type) ? Value(vector::FromElementsOp::create(b, cast<VectorType>(type), lanes))
                               : lanes.front();
}

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

/// Two neighbours at a time become one `piece`, an integer; an odd one goes beside a zero.
Value Lowering::inPairs(Value value, Type type, Type piece, Pair convert) {
  SmallVector<Value> lanes = lanesOf(value), pieces;
  size_t count = lanes.size();
  for (size_t i = 0; i < count; i += 2)
    pieces.push_back(bits(convert(lanes[i], i + 1 < count ? lanes[i + 1] : f32(0)), piece));
  unsigned half = piece.getIntOrFloatBitWidth() / 2;
  Type own = b.getIntegerType(half), element = getElementTypeOrSelf(type);
  if (count % 2 == 0) {
    auto packed = VectorType::get(static_cast<int64_t>(count / 2), piece);
    Value all = vector::FromElementsOp::create(b, packed, pieces);
    if (!isFloat8(element))
      return vector::BitCastOp::create(b, cast<VectorType>(type), all);
    Value bytes = vector::BitCastOp::create(b, VectorType::get(static_cast<int64_t>(count), own), all);
    return bits(bytes, type);
  }
  SmallVector<Value> single;
  for (size_t i = 0; i < count; ++i) {
    Value bitsOf = pieces[i / 2];
    if (i % 2)
      bitsOf = arith::ShRUIOp::create(b, bitsOf, arith::ConstantOp::create(b, b.getIntegerAttr(piece, half)));
    single.push_back(bits(arith::TruncIOp::create(b, own, bitsOf), element));
  }
  return join(single, type);
}

/// To BF16 or FP16.
Value Lowering::narrowPairs(Value value, Type type) {
  Type element = getElementTypeOrSelf(type);
  return inPairs(value, type, b.getI32Type(), [&](Value low, Value high) -> Value {
    auto rounding = NVVM::FPRoundingMode::RN;
    Type pair = VectorType::get(2, element);
    Value packed = element.isBF16() ? Value(NVVM::ConvertF32x2ToBF16x2Op::create(b, pair, high, low, Value(), rounding))
                                    : Value(NVVM::ConvertF32x2ToF16x2Op::create(b, pair, high, low, Value(), rounding));
    return vector::ExtractOp::create(b, vector::BitCastOp::create(b, VectorType::get(1, b.getI32Type()), packed),
                                     static_cast<int64_t>(0));
  });
}

/// Words of two: one shift, one mask.
Value Lowering::widenBFloat16(Value value) {
  unsigned width = ValueBuilder::width(value);
  if (width % 2 != 0)
    return e.widen(value);
  auto words = VectorType::get(width / 2, b.getI32Type());
  Value both = vector::BitCastOp::create(b, words, value);
  Value low = arith::ShLIOp::create(b, both, e.constantLike(both, APInt(32, 16)));
  Value high = arith::AndIOp::create(b, both, e.constantLike(both, APInt(32, 0xffff0000u)));
  SmallVector<int64_t> order;
  for (unsigned i = 0; i < width; ++i)
    order.push_back(i / 2 + (i % 2) * (width / 2));
  Value all = vector::ShuffleOp::create(b, low, high, order);
  return bits(all, VectorType::get(width, b.getF32Type()));
}

Value Lowering::widenFloat8(Value value) {
  Type i8 = b.getIntegerType(8), type = getElementTypeOrSelf(value), f16 = b.getF16Type();
  SmallVector<Value> lanes = lanesOf(bits(value, e.typeLike(i8, value))), halves;
  for (size_t i = 0; i < lanes.size(); i += 2) {
    Value pair[] = {lanes[i], i + 1 < lanes.size() ? lanes[i + 1] : lanes[i]};
    Value bytes = vector::FromElementsOp::create(b, VectorType::get(2, i8), pair);
    auto both = NVVM::ConvertF8x2ToF16x2Op::create(b, TypeRange{VectorType::get(2, f16)}, ValueRange{bytes},
                                                   b.getNamedAttr("srcType", TypeAttr::get(type)));
    for (Value half : lanesOf(both.getDst()))
      if (halves.size() < lanes.size())
        halves.push_back(half);
  }
  return arith::ExtFOp::create(b, op->getResult(0).getType(), join(halves, e.typeLike(f16, value)));
}

/// A sum or difference of two numbers of 16 bits, or a product of two of FP16, rounded to their type, by instructions
/// of that type, which make two at a time. The same numbers: FP32 holds the product exactly, and has more than twice
/// the digits and two, so that rounding a sum to FP32 first changes nothing (Figueroa, "When is double rounding
/// innocuous?", 1995). A product of two of BF16 may be too small for FP32.
Value Lowering::narrowArithmetic() {
  auto narrow = cast<arith::TruncFOp>(op);
  Operation *wide = narrow.getIn().getDefiningOp();
  Type element = getElementTypeOrSelf(narrow.getType());
  unsigned width = ValueBuilder::width(narrow.getIn());
  bool isSum = isa_and_nonnull<arith::AddFOp, arith::SubFOp>(wide);
  bool isProduct = isa_and_nonnull<arith::MulFOp>(wide);
  if (width % 2 != 0 || !(element.isF16() ? isSum || isProduct : element.isBF16() && sm >= 90 && isSum))
    return {};
  SmallVector<Value> operands;
  for (Value operand : wide->getOperands()) {
    auto spread = operand.getDefiningOp<vector::BroadcastOp>();
    auto widen = (spread ? spread.getSource() : operand).getDefiningOp<arith::ExtFOp>();
    if (!widen || getElementTypeOrSelf(widen.getIn()) != element)
      return {};
    operands.push_back(e.splat(widen.getIn(), width));
  }
  OperationState state(op->getLoc(), wide->getName(), operands, narrow.getType(), {});
  return b.create(state)->getResult(0);
}

/// `value` without limits to the range of `type`, where it has them: `satfinite` applies the same ones.
static Value unlimited(Value value, FloatType type) {
  double largest = llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
  auto least = value.getDefiningOp<arith::MinimumFOp>();
  if (!least || ValueBuilder::numberIn(least.getRhs()) != largest)
    return {};
  auto most = least.getLhs().getDefiningOp<arith::MaximumFOp>();
  return most && ValueBuilder::numberIn(most.getRhs()) == -largest ? most.getLhs() : Value();
}

/// The conversion saturates. A cast that does not has infinity beyond its range, or NaN where the type has none.
Value Lowering::narrowFloat8(Value value, Type type) {
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  Value whole = unlimited(value, element), beyond;
  if (!whole) {
    whole = value;
    // The first magnitude that rounds out of the range: a tie goes to the even neighbour, which E4M3FN's largest is.
    bool tieStays = isa<Float8E4M3FNType>(element);
    Value size = math::AbsFOp::create(b, value);
    Value limit = e.constantLike(value, tieStays ? 464.0 : 61440.0);
    beyond = arith::CmpFOp::create(b, tieStays ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OGE, size, limit);
    if (tieStays)
      whole = arith::SelectOp::create(b, beyond, e.constantLike(value, NAN), value);
  }
  Type i16 = b.getIntegerType(16), i8 = b.getIntegerType(8);
  Value result = inPairs(whole, type, i16, [&](Value low, Value high) -> Value {
    MLIRContext *context = b.getContext();
    return NVVM::ConvertF32x2ToF8x2Op::create(b, i16, high, low,
                                              NVVM::FPRoundingModeAttr::get(context, NVVM::FPRoundingMode::RN),
                                              NVVM::SaturationModeAttr::get(context, NVVM::SaturationMode::SATFINITE),
                                              b.getBoolAttr(false), TypeAttr::get(element));
  });
  if (!beyond || !isa<Float8E5M2Type>(element))
    return result;
  Value bytes = bits(result, e.typeLike(i8, value)), sign = e.constantLike(bytes, APInt(32, 0x80));
  Value infinite =
      arith::OrIOp::create(b, arith::AndIOp::create(b, bytes, sign), e.constantLike(bytes, APInt(32, 0x7c)));
  return bits(arith::SelectOp::create(b, beyond, infinite, bytes), type);
}

/// An FP16 in whose place a number of E4M3 is 2^-8 of itself has the number's bits below its second one; one of E5M2
/// has them on top.
Value Lowering::packedFloat8() {
  auto narrow = cast<arith::TruncFOp>(op);
  Type type = narrow.getType(), element = getElementTypeOrSelf(type), i32 = b.getI32Type();
  unsigned width = ValueBuilder::width(narrow.getIn());
  if (!isFloat8(element) || width % 4 != 0 || !getElementTypeOrSelf(narrow.getIn()).isF32())
    return {};
  Value whole = e.round(narrow.getIn(), element);
  bool isE4M3 = isa<Float8E4M3FNType>(element);
  if (isE4M3) // 480, which the type has not, has the place of its NaN
    whole = mul(arith::MinNumFOp::create(b, whole, e.constantLike(whole, 480.0)), e.constantLike(whole, 0x1p-8));
  Value words = narrowPairs(whole, VectorType::get(width, b.getF16Type()));
  words = vector::BitCastOp::create(b, VectorType::get(width / 2, i32), words);
  if (isE4M3) {
    // The sign stays, as a choice of bits that is one instruction.
    Value up = arith::ShLIOp::create(b, words, e.constantLike(words, APInt(32, 1)));
    Value change =
        arith::AndIOp::create(b, arith::XOrIOp::create(b, up, words), e.constantLike(words, APInt(32, 0x7f007f00)));
    words = arith::XOrIOp::create(b, words, change);
  }
  SmallVector<Value> halves = lanesOf(words), bytes;
  for (size_t i = 0; i < halves.size(); i += 2) {
    Value operands[] = {halves[i], halves[i + 1], number(0x7531)};
    bytes.push_back(
        LLVM::CallIntrinsicOp::create(b, i32, b.getStringAttr("llvm.nvvm.prmt"), ValueRange(operands)).getResults());
  }
  Value all = vector::FromElementsOp::create(b, VectorType::get(width / 4, i32), bytes);
  return bits(vector::BitCastOp::create(b, VectorType::get(width, b.getIntegerType(8)), all), type);
}

//===----------------------------------------------------------------------===//
// Exponentials
//===----------------------------------------------------------------------===//

/// 2^n 2^t with n the whole number next to x log2(e), limited to exponents of normal numbers: the excess stays in
/// t, so that results become subnormal, 0 and infinite in the last multiplication.
Value Lowering::exp(Value x) {
  constexpr double anchor = 0x1.8p23 + 127; // numbers beside it have the exponent's bits as their last ones
  constexpr double high = 0x1.715476p0, low = 0x1.4ae0cp-26; // log2(e)
  Value limited = arith::MinNumFOp::create(b, arith::MaxNumFOp::create(b, x, f32(-87)), f32(88));
  Value placed = fma(limited, f32(high), f32(anchor));
  Value n = arith::SubFOp::create(b, placed, f32(anchor));
  Value t = fma(x, f32(low), fma(x, f32(high), arith::NegFOp::create(b, n)));
  Value power = bits(arith::ShLIOp::create(b, bits(placed, b.getI32Type()), number(23)), b.getF32Type());
  return mul(ex2(t), power);
}

/// `x` as a multiple of another value by a power of two, which another factor can take up without a rounding.
static std::pair<Value, double> withoutPower(Value x) {
  auto product = x.getDefiningOp<arith::MulFOp>();
  if (!product)
    return {x, 1};
  for (auto [value, factor] :
       {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())}) {
    std::optional<double> number = ValueBuilder::numberIn(factor);
    int exponent;
    if (number && std::abs(*number) <= 2 && std::abs(std::frexp(*number, &exponent)) == 0.5 && exponent > -8)
      return {value, *number};
  }
  return {x, 1};
}

/// 2^(x log2(e)); of a difference, both parts are scaled, which for a row's largest element is done once.
Value Lowering::coarseExp(Value x) {
  constexpr double log2e = 0x1.715476p0;
  SmallVector<Value> results;
  auto difference = x.getDefiningOp<arith::SubFOp>();
  if (!difference) {
    auto [inner, factor] = withoutPower(x);
    for (Value lane : lanesOf(inner))
      results.push_back(ex2(mul(lane, f32(factor * log2e))));
    return join(results, x.getType());
  }
  for (auto [p, q] : llvm::zip_equal(lanesOf(difference.getLhs()), lanesOf(difference.getRhs())))
    results.push_back(ex2(fma(p, f32(log2e), mul(q, f32(-log2e)))));
  return join(results, x.getType());
}

//===----------------------------------------------------------------------===//
// Quotients
//===----------------------------------------------------------------------===//

/// A quotient with its remainder taken into account. Where that has no meaning, beside infinities and zeros, the
/// quotient stays.
Value Lowering::refined(Value x, Value y, Value quotient, Value reciprocal) {
  Value rest = fma(arith::NegFOp::create(b, y), quotient, x);
  Value better = fma(rest, reciprocal, quotient);
  Value size = math::AbsFOp::create(b, better);
  Value usable = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, f32(INFINITY));
  return arith::SelectOp::create(b, usable, better, quotient);
}

/// One divisor of all lanes: its reciprocal is taken once, of the divisor in a range where it is a normal number.
Value Lowering::divideAll(ArrayRef<Value> x, Value y, Type type, bool exact) {
  Value size = math::AbsFOp::create(b, y), one = f32(1);
  Value tiny = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, f32(0x1p-100));
  Value scale = arith::SelectOp::create(b, tiny, f32(0x1p64), one);
  Value reciprocal = intrinsic("llvm.nvvm.div.full", ValueRange{one, mul(y, scale)});
  SmallVector<Value> results;
  for (Value p : x) {
    Value quotient = mul(mul(p, reciprocal), scale);
    results.push_back(exact ? refined(p, y, quotient, mul(reciprocal, scale)) : quotient);
  }
  return join(results, type);
}

Value Lowering::divide(arith::DivFOp div) {
  Value x = div.getLhs(), y = div.getRhs();
  SmallVector<Value> numerators = lanesOf(x), results;
  if (bitEnumContainsAny(div.getFastmath(), arith::FastMathFlags::arcp)) {
    for (auto [p, q] : llvm::zip_equal(numerators, lanesOf(y)))
      results.push_back(mul(p, intrinsic("llvm.nvvm.rcp.approx.ftz.f", q)));
    return join(results, div.getType());
  }
  llvm::DenseSet<Operation *> seen;
  bool exact = showsLastPlace(div, seen);
  auto spread = y.getDefiningOp<vector::BroadcastOp>();
  if (spread && !isa<VectorType>(spread.getSource().getType()))
    return divideAll(numerators, spread.getSource(), div.getType(), exact);
  if (std::optional<double> divisor = ValueBuilder::numberIn(y))
    return divideAll(numerators, f32(*divisor), div.getType(), exact);
  for (auto [p, q] : llvm::zip_equal(numerators, lanesOf(y))) {
    Value quotient = intrinsic("llvm.nvvm.div.full", ValueRange{p, q});
    if (exact)
      quotient = refined(p, q, quotient, intrinsic("llvm.nvvm.div.full", ValueRange{f32(1), q}));
    results.push_back(quotient);
  }
  return join(results, div.getType());
}

Value Lowering::lowered() {
  Type result = op->getResult(0).getType(), element = getElementTypeOrSelf(result);
  unsigned width = ValueBuilder::width(op->getResult(0));
  if (auto widen = dyn_cast<arith::ExtFOp>(op)) {
    Type from = getElementTypeOrSelf(widen.getIn());
    if (from.isBF16())
      return widenBFloat16(widen.getIn());
    return isFloat8(from) && sm >= 89 ? widenFloat8(widen.getIn()) : Value();
  }
  if (auto narrow = dyn_cast<arith::TruncFOp>(op)) {
    if (!getElementTypeOrSelf(narrow.getIn()).isF32())
      return {};
    if (isFloat8(element))
      return sm >= 89 ? narrowFloat8(narrow.getIn(), result) : Value();
    return width > 1 || element.isBF16() ? narrowPairs(narrow.getIn(), result) : Value();
  }
  if (!element.isF32())
    return {};
  if (coarse)
    return coarseExp(op->getOperand(0));
  if (isa<math::ExpOp, math::Exp2Op>(op)) {
    SmallVector<Value> results;
    for (Value x : lanesOf(op->getOperand(0)))
      results.push_back(isa<math::Exp2Op>(op) ? ex2(x) : exp(x));
    return join(results, result);
  }
  auto div = dyn_cast<arith::DivFOp>(op);
  return div ? divide(div) : Value();
}

void cuda::lowerFloatOps(Operation *kernels, unsigned sm) {
  llvm::DenseSet<Operation *> coarse = coarseExponentials(kernels);
  auto replace = [](Operation *op, Value value) {
    if (!value)
      return;
    op->replaceAllUsesWith(ValueRange{value});
    op->erase();
  };
  kernels->walk([&](arith::TruncFOp op) { replace(op, Lowering(op, sm, false).narrowArithmetic()); });
  kernels->walk([&](Operation *op) {
    if (!isa<arith::ExtFOp, arith::TruncFOp, arith::DivFOp, math::ExpOp, math::Exp2Op>(op))
      return;
    replace(op, Lowering(op, sm, coarse.contains(op)).lowered());
  });
  // Ops that an older architecture has no instructions for.
  KernelTarget plain;
  if (sm < 89) {
    foldFloat8RoundTrips(kernels, plain);
    kernels->walk([&](arith::TruncFOp op) { replace(op, Lowering(op, sm, false).packedFloat8()); });
  }
  expandFloatOps(kernels, plain);
}
