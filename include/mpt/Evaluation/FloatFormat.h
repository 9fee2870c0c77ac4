// SPDX-License-Identifier: Apache-2.0
// Float types as sets of real numbers: exact decoding, and rounding of FP64 values to them.
#ifndef MPT_EVALUATION_FLOATFORMAT_H
#define MPT_EVALUATION_FLOATFORMAT_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "llvm/ADT/bit.h"

#include <cmath>

namespace mpt {

/// A binary float type of at most 64 bits whose values are all FP64 values. Values are held as double everywhere in the
/// interpreter; a format rounds them to the numbers the type has. Bitwise identical to LLVM's APFloat conversions.
class FloatFormat {
public:
  /// The format of `type`: f64, f32, f16, bf16, f8E4M3FN or f8E5M2.
  explicit FloatFormat(mlir::FloatType type);

  /// `x` to nearest, ties to even; beyond the range to infinity (NaN in a type without infinities).
  double round(double x) const {
    if (digits == 53)
      return x;
    if (digits == 24)
      return static_cast<double>(static_cast<float>(x));
    return roundNarrow(x);
  }
  /// The same with a cast's modes. `word` is the 32 random bits of stochastic rounding: the magnitude's excess over the
  /// next lower value, as a fraction f of the gap, rounds up iff floor(f 2^32) + word >= 2^32 (adding the random bits
  /// to the discarded bits and truncating). Saturation also maps infinities to the largest finite value.
  double round(double x, Rounding rounding, Overflow overflow, uint32_t word = 0) const;

  /// The number with encoding `bits`, and the encoding of a number of this type (NaN payloads survive where they fit).
  double decode(uint64_t bits) const;
  uint64_t encode(double x) const;

  unsigned width() const { return bitWidth; }
  double largest() const { return maximum; }
  /// Half the gap between 1 and the next value: the largest relative error of rounding a number in the normal range.
  double epsilon() const { return std::ldexp(1.0, -digits); }
  double smallestNormal() const { return std::ldexp(1.0, minExponent); }
  double smallest() const { return std::ldexp(1.0, minExponent - digits + 1); }

private:
  double roundNarrow(double x) const {
    double magnitude = std::fabs(x);
    if (!(magnitude <= 2 * maximum))
      return std::isnan(x) ? x : overflowed(x, Overflow::Infinity);
    // Exponent of x from its bits; FP64 subnormals are far below every narrow type's range and count as zero's binade.
    int exponent = static_cast<int>((llvm::bit_cast<uint64_t>(x) >> 52) & 0x7ff) - 1023;
    int scale = std::max(exponent, minExponent) - digits + 1;
    // Adding 1.5 * 2^52 gaps leaves no room for fractions of a gap: the FP64 addition rounds to nearest even.
    double magic = llvm::bit_cast<double>((static_cast<uint64_t>(scale + 52 + 1023) << 52) | (UINT64_C(1) << 51));
    double rounded = (magnitude + magic) - magic;
    return rounded > maximum ? overflowed(x, Overflow::Infinity) : std::copysign(rounded, x);
  }
  double overflowed(double x, Overflow overflow) const;
  /// Distance between neighbouring values of the type around the finite number x.
  double gap(double x) const;

  unsigned bitWidth;
  int digits;      // significant bits, with the hidden one
  int minExponent; // of the smallest normal value
  double maximum;
  bool hasInfinity;
};

/// Calls fn(round), where round(double) rounds to `type`: one instance a common type, so that loops stay tight.
template <typename Fn> void withRounding(mlir::FloatType type, Fn fn) {
  if (type.isF64())
    fn([](double x) { return x; });
  else if (type.isF32())
    fn([](double x) { return static_cast<double>(static_cast<float>(x)); });
  else
    fn([format = FloatFormat(type)](double x) { return format.round(x); });
}

} // namespace mpt

#endif // MPT_EVALUATION_FLOATFORMAT_H
