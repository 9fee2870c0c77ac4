// SPDX-License-Identifier: Apache-2.0
// Rounding to narrow float types in FP64 arithmetic, and bit encodings.
#include "mpt/Evaluation/FloatFormat.h"

using namespace mlir;
using namespace mpt;

FloatFormat::FloatFormat(FloatType type) {
  const llvm::fltSemantics &semantics = type.getFloatSemantics();
  assert(type.getWidth() <= 64 && "expected a float type of at most 64 bits");
  bitWidth = type.getWidth();
  digits = llvm::APFloat::semanticsPrecision(semantics);
  minExponent = llvm::APFloat::semanticsMinExponent(semantics);
  llvm::APFloat top = llvm::APFloat::getLargest(semantics);
  bool loses;
  top.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &loses);
  maximum = top.convertToDouble();
  hasInfinity = llvm::APFloat::semanticsHasInf(semantics);
}

double FloatFormat::gap(double x) const {
  int exponent = x == 0.0 ? minExponent : std::ilogb(x);
  return std::ldexp(1.0, std::max(exponent, minExponent) - digits + 1);
}

double FloatFormat::overflowed(double x, Overflow overflow) const {
  if (overflow == Overflow::Saturate)
    return std::copysign(maximum, x);
  return std::copysign(hasInfinity ? HUGE_VAL : std::nan(""), x);
}

double FloatFormat::round(double x, Rounding rounding, Overflow overflow, uint32_t word) const {
  if (std::isnan(x))
    return x;
  if (std::isinf(x))
    return overflowed(x, overflow);
  double rounded;
  if (rounding == Rounding::NearestEven) {
    rounded = round(x);
    // Finite input, no finite output: beyond the range.
    if (!std::isfinite(rounded))
      return overflowed(x, overflow);
    return rounded;
  }
  double step = gap(x), magnitude = std::fabs(x), count = std::floor(magnitude / step);
  if (rounding == Rounding::Stochastic) {
    double fraction = magnitude / step - count;
    if (static_cast<uint64_t>(std::floor(std::ldexp(fraction, 32))) + word >= (UINT64_C(1) << 32))
      count += 1.0;
  }
  rounded = std::copysign(count * step, x);
  if (std::fabs(rounded) <= maximum)
    return rounded;
  // Truncation never leaves the range (IEEE 754, 7.4).
  return overflowed(x, rounding == Rounding::TowardZero ? Overflow::Saturate : overflow);
}

double FloatFormat::decode(uint64_t bits) const {
  if (bitWidth == 64)
    return llvm::bit_cast<double>(bits);
  int fractionBits = digits - 1;
  uint64_t sign = (bits >> (bitWidth - 1)) & 1, fraction = bits & ((UINT64_C(1) << fractionBits) - 1);
  int exponentBits = bitWidth - 1 - fractionBits;
  uint64_t exponent = (bits >> fractionBits) & ((UINT64_C(1) << exponentBits) - 1);
  bool top = exponent == (UINT64_C(1) << exponentBits) - 1;
  bool isNaN = top && (hasInfinity ? fraction != 0 : fraction == (UINT64_C(1) << fractionBits) - 1);
  if (isNaN) // exponent of all ones, the payload's high bits first
    return llvm::bit_cast<double>((sign << 63) | (UINT64_C(0x7ff) << 52) | (fraction << (52 - fractionBits)));
  double magnitude = top && hasInfinity ? HUGE_VAL
                     : exponent == 0    ? std::ldexp(static_cast<double>(fraction), minExponent - fractionBits)
                                        : std::ldexp(static_cast<double>(fraction | (UINT64_C(1) << fractionBits)),
                                                     minExponent + static_cast<int>(exponent) - 1 - fractionBits);
  return sign ? -magnitude : magnitude;
}

uint64_t FloatFormat::encode(double x) const {
  uint64_t raw = llvm::bit_cast<uint64_t>(x);
  if (bitWidth == 64)
    return raw;
  int fractionBits = digits - 1, exponentBits = bitWidth - 1 - fractionBits;
  uint64_t ones = (UINT64_C(1) << exponentBits) - 1, fractionMask = (UINT64_C(1) << fractionBits) - 1;
  uint64_t sign = (raw >> 63) << (bitWidth - 1);
  if (std::isnan(x)) {
    uint64_t payload = hasInfinity ? (raw & ((UINT64_C(1) << 52) - 1)) >> (52 - fractionBits) : fractionMask;
    if (payload == 0)
      payload = UINT64_C(1) << (fractionBits - 1);
    return sign | (ones << fractionBits) | payload;
  }
  if (std::isinf(x))
    return sign | (ones << fractionBits);
  double magnitude = std::fabs(x);
  if (magnitude < smallestNormal())
    return sign | static_cast<uint64_t>(std::ldexp(magnitude, fractionBits - minExponent));
  int exponent = std::ilogb(magnitude);
  auto significand = static_cast<uint64_t>(std::ldexp(magnitude, fractionBits - exponent));
  return sign | (static_cast<uint64_t>(exponent - minExponent + 1) << fractionBits) | (significand & fractionMask);
}
