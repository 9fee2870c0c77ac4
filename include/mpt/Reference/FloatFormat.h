// Float types as sets of real numbers: exact decoding, and rounding of FP64 values to them.
#ifndef MPT_REFERENCE_FLOATFORMAT_H
#define MPT_REFERENCE_FLOATFORMAT_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include <cmath>

namespace mpt {

/// A binary float type of at most 64 bits whose values are all FP64 values. Values are held as double everywhere in the
/// interpreter; a format rounds them to the numbers the type has. Agrees bit for bit with LLVM's APFloat conversions.
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
  double roundNarrow(double x) const;
  double overflowed(double x, Overflow overflow) const;
  /// Distance between neighbouring values of the type around the finite number x.
  double gap(double x) const;

  unsigned bitWidth;
  int digits;      // significant bits, with the hidden one
  int minExponent; // of the smallest normal value
  double maximum;
  bool hasInfinity;
};

} // namespace mpt

#endif // MPT_REFERENCE_FLOATFORMAT_H
