// SPDX-License-Identifier: Apache-2.0
// 8-bit floats (OCP 8-bit floating point specification): E4M3FN and E5M2, as f32 values and as bytes.
// Matcher: values that a saturating cast has limited to a range.
#include "Float8.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mpt;

namespace {

struct Format {
  unsigned mantissa, bias;
  uint32_t largest;  ///< magnitude of the largest finite number
  bool hasInfinity;  ///< 0x7c; else larger magnitudes are NaN, 0x7f
  double half;       ///< the number in an f16's place, its sign apart, is this much of its value
  unsigned halfBits; ///< bits of an f16 below it there
};

Format formatOf(Type type) {
  return isa<Float8E5M2Type>(type) ? Format{2, 15, 0x7b, true, 1.0, 8} : Format{3, 7, 0x7e, false, 0x1p-8, 7};
}

/// Integers beside a value, and operations on them.
struct Bits {
  ValueBuilder &e;
  ImplicitLocOpBuilder &b = e.b;

  Value cast(Value x, Type element) { return arith::BitcastOp::create(b, e.typeLike(element, x), x); }
  Value zext(Value x, unsigned bits) { return arith::ExtUIOp::create(b, e.typeLike(b.getIntegerType(bits), x), x); }
  Value trunc(Value x, unsigned bits) { return arith::TruncIOp::create(b, e.typeLike(b.getIntegerType(bits), x), x); }
  Value number(Value like, uint32_t n) { return e.constantLike(like, APInt(32, n)); }
  Value both(Value x, uint32_t n) { return arith::AndIOp::create(b, x, number(x, n)); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, x, y); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value up(Value x, unsigned n) { return arith::ShLIOp::create(b, x, number(x, n)); }
  Value down(Value x, unsigned n) { return arith::ShRUIOp::create(b, x, number(x, n)); }
  Value is(arith::CmpIPredicate predicate, Value x, uint32_t n) {
    return arith::CmpIOp::create(b, predicate, x, number(x, n));
  }
  Value select(Value condition, uint32_t x, Value y) { return arith::SelectOp::create(b, condition, number(y, x), y); }
};

/// The value that `value` clamps to [-limit, limit]; null where it is no such clamp.
Value unlimited(Value value, double &limit) {
  auto least = value.getDefiningOp<arith::MinimumFOp>();
  auto most = least ? least.getLhs().getDefiningOp<arith::MaximumFOp>() : nullptr;
  std::optional<double> above = least ? ValueBuilder::numberIn(least.getRhs()) : std::nullopt;
  std::optional<double> below = most ? ValueBuilder::numberIn(most.getRhs()) : std::nullopt;
  if (!above || !below || *above != -*below)
    return {};
  limit = *above;
  return most.getLhs();
}

} // namespace

Value mpt::widenFloat8(ValueBuilder &e, Value value) {
  Format format = formatOf(getElementTypeOrSelf(value));
  ImplicitLocOpBuilder &b = e.b;
  Bits t{e};
  Value byte = t.cast(value, b.getIntegerType(8)), magnitude;
  if (e.target.halves) {
    Value bits = t.zext(byte, 16);
    if (format.halfBits == 8)
      return arith::ExtFOp::create(b, e.typeLike(b.getF32Type(), value), t.cast(t.up(bits, 8), b.getF16Type()));
    magnitude = t.both(bits, 0x7f);
    Value half = t.select(t.is(arith::CmpIPredicate::eq, magnitude, 0x7f), 0x7e00, t.up(magnitude, format.halfBits));
    half = t.cast(t.either(half, t.up(t.both(bits, 0x80), 8)), b.getF16Type());
    Value scaled = arith::ExtFOp::create(b, e.typeLike(b.getF32Type(), value), half);
    return arith::MulFOp::create(b, scaled, e.constantLike(scaled, 1 / format.half));
  }
  Value bits = t.zext(byte, 32);
  magnitude = t.both(bits, 0x7f);
  // Exponent and mantissa in place of f32's; multiplication by a power of two corrects the bias, subnormals included.
  Value scaled = t.cast(t.up(magnitude, 23 - format.mantissa), b.getF32Type());
  scaled = arith::MulFOp::create(b, scaled, e.constantLike(scaled, std::ldexp(1.0, 127 - format.bias)));
  Value result = t.cast(scaled, b.getI32Type());
  if (format.hasInfinity)
    result = t.select(t.is(arith::CmpIPredicate::eq, magnitude, 0x7c), 0x7f800000, result);
  result = t.select(t.is(arith::CmpIPredicate::ugt, magnitude, format.hasInfinity ? 0x7c : 0x7e), 0x7fc00000, result);
  return t.cast(t.either(result, t.up(t.both(bits, 0x80), 24)), b.getF32Type());
}

Value mpt::roundFloat8(ValueBuilder &e, Value value, Type type) {
  Format format = formatOf(type);
  ImplicitLocOpBuilder &b = e.b;
  Bits t{e};
  unsigned drop = 23 - format.mantissa;
  uint32_t largest = (format.largest << drop) + ((127 - format.bias) << 23);
  double limit = INFINITY;
  Value whole = unlimited(value, limit);
  bool isLimited = whole && limit <= llvm::bit_cast<float>(largest);
  Value bits = t.cast(isLimited ? whole : value, b.getI32Type()), magnitude = t.both(bits, 0x7fffffff);
  // Both limits are one of the magnitude.
  if (isLimited)
    magnitude = t.cast(arith::MinimumFOp::create(b, math::AbsFOp::create(b, whole), e.constantLike(whole, limit)),
                       b.getI32Type());
  // Adding a power of two whose unit is the step of the format at the value rounds to that step, to nearest even.
  // Subnormal results share the step of the smallest normal number. Values beyond the format's range stay there;
  // where the power is infinite, the difference is a NaN of either sign.
  Value power = arith::MaxSIOp::create(b, t.both(magnitude, 0x7f800000), t.number(bits, (128 - format.bias) << 23));
  // The multiplication is exact; GPUs have it beside integer arithmetic, which limits this code there.
  Value anchor = t.cast(power, b.getF32Type());
  anchor = arith::MulFOp::create(b, anchor, e.constantLike(anchor, std::ldexp(1.0, static_cast<int>(drop))));
  Value wide = t.cast(magnitude, b.getF32Type());
  wide = arith::SubFOp::create(b, arith::AddFOp::create(b, wide, anchor), anchor);
  Value result = t.cast(wide, b.getI32Type());
  // Without infinities a NaN alone is beyond the range, and comes through the sums as one.
  if (!isLimited) {
    result = t.select(t.is(arith::CmpIPredicate::ugt, result, largest), format.hasInfinity ? 0x7f800000 : 0x7fc00000,
                      result);
    result = t.select(t.is(arith::CmpIPredicate::sgt, magnitude, 0x7f800000), 0x7fc00000, result);
  }
  return t.cast(t.either(result, t.both(bits, 0x80000000u)), b.getF32Type());
}

Value mpt::narrowFloat8(ValueBuilder &e, Value value, Type type) {
  Format format = formatOf(type);
  ImplicitLocOpBuilder &b = e.b;
  Bits t{e};
  Value byte;
  if (e.target.halves) {
    Value scaled = format.half == 1 ? value : arith::MulFOp::create(b, value, e.constantLike(value, format.half));
    Value bits = t.cast(arith::TruncFOp::create(b, e.typeLike(b.getF16Type(), value), scaled), b.getIntegerType(16));
    byte = t.down(bits, 8);
    if (format.halfBits != 8) {
      // An f16 of 2 or more is NaN.
      Value magnitude = t.both(t.down(bits, format.halfBits), 0x7f);
      magnitude = t.select(t.is(arith::CmpIPredicate::ne, t.both(bits, 0x4000), 0), 0x7f, magnitude);
      byte = t.either(magnitude, t.both(byte, 0x80));
    }
    return t.cast(t.trunc(byte, 8), type);
  }
  unsigned drop = 23 - format.mantissa;
  Value bits = t.cast(value, b.getI32Type()), magnitude = t.both(bits, 0x7fffffff);
  Value normal = t.add(t.down(magnitude, drop), t.number(bits, 0u - ((127 - format.bias) << format.mantissa)));
  Value wide = t.cast(magnitude, b.getF32Type());
  Value anchor = e.constantLike(wide, std::ldexp(1.0, 24 - static_cast<int>(format.bias + format.mantissa)));
  Value small = t.both(t.cast(arith::AddFOp::create(b, wide, anchor), b.getI32Type()), 0x7f);
  Value isSmall = t.is(arith::CmpIPredicate::slt, magnitude, (128 - format.bias) << 23);
  Value result = arith::SelectOp::create(b, isSmall, small, normal);
  if (format.hasInfinity)
    result = t.select(t.is(arith::CmpIPredicate::sge, magnitude, 0x7f800000), 0x7c, result);
  result =
      t.select(t.is(arith::CmpIPredicate::sgt, magnitude, format.hasInfinity ? 0x7f800000 : 0x7f7fffff), 0x7f, result);
  byte = t.either(result, t.both(t.down(bits, 24), 0x80));
  return t.cast(t.trunc(byte, 8), type);
}
