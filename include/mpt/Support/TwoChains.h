// SPDX-License-Identifier: Apache-2.0
// Sums of products of BF16 numbers in the order of matrix tiles (TDPBF16PS), in software: 32 products are two chains of
// fused multiply-adds from 0, of the even terms and the odd ones. Their sum is added to the sum so far. Zeros extend
// the terms to a multiple of 32. Subnormal operands are zeros, and so are subnormal results, by their size after
// rounding.
#ifndef MPT_SUPPORT_TWOCHAINS_H
#define MPT_SUPPORT_TWOCHAINS_H

#include <cmath>
#include <cstdint>

namespace mpt {

struct TwoChains {
  static constexpr int64_t terms = 32;
  static constexpr float least = 0x1p-126F;

  static float flushed(float x) { return std::fabs(x) < least ? std::copysign(0.0F, x) : x; }

  /// a b + sum of numbers that are not subnormal, rounded once.
  static float multiplyAdd(float a, float b, float sum) {
    const float result = __builtin_fmaf(a, b, sum), size = std::fabs(result);
    if (size != least)
      return flushed(result);
    // Subnormal numbers are so far apart that rounding to them may have made `least` of a number that is smaller with
    // all its bits.
    const bool smaller = std::fabs(a) < std::fabs(b);
    const float exact = __builtin_fmaf(smaller ? a * 0x1p64F : a, smaller ? b : b * 0x1p64F, sum * 0x1p64F);
    return std::fabs(exact) < least * 0x1p64F ? std::copysign(0.0F, result) : result;
  }

  /// The sum after `count` more products, at most 32 of them.
  template <typename A, typename B> static float add(float sum, A a, B b, int64_t count) {
    float chains[2] = {0, 0};
    for (int64_t p = 0; p < count; ++p)
      chains[p % 2] = multiplyAdd(a(p), b(p), chains[p % 2]);
    if (count < terms) // 0 * 0 makes 0 of -0
      chains[1] += 0.0F;
    return flushed(sum + flushed(chains[0] + chains[1]));
  }
};

} // namespace mpt

#endif // MPT_SUPPORT_TWOCHAINS_H
