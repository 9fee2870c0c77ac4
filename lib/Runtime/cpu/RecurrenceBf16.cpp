// SPDX-License-Identifier: Apache-2.0
// Recurrences with BF16 weights on processors that multiply BF16: pairs of products, summed in FP32.
#include "cpu/Recurrence.h"

#include <immintrin.h>

namespace {

struct Tile {
  using Element = uint16_t;
  static constexpr int columns = 32, rows = 12;
  static constexpr int64_t pair = 2, depthUnit = 2;
  static void finish() {}

  template <int R>
  static void multiplyRows(int64_t depth, const uint16_t *a, int64_t lead, const uint16_t *panel, float *c,
                           bool accumulate) {
    __m512 acc[R][2];
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        acc[i][h] = accumulate ? _mm512_loadu_ps(c + i * columns + h * 16) : _mm512_setzero_ps();
#pragma clang loop unroll_count(4)
    for (int64_t k = 0; k < depth; k += 2) {
      auto b0 = (__m512bh)_mm512_loadu_si512(panel + k * columns);
      auto b1 = (__m512bh)_mm512_loadu_si512(panel + k * columns + 32);
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i) {
        int pair;
        __builtin_memcpy(&pair, a + i * lead + k, 4);
        auto x = (__m512bh)_mm512_set1_epi32(pair);
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], x, b0);
        acc[i][1] = _mm512_dpbf16_ps(acc[i][1], x, b1);
      }
    }
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        _mm512_storeu_ps(c + i * columns + h * 16, acc[i][h]);
  }

  template <int R> static auto find(int64_t count) {
    using Fn = void (*)(int64_t, const uint16_t *, int64_t, const uint16_t *, float *, bool);
    if constexpr (R == 1)
      return static_cast<Fn>(multiplyRows<1>);
    else
      return count == R ? static_cast<Fn>(multiplyRows<R>) : find<R - 1>(count);
  }

  static void multiply(int64_t count, int64_t depth, const uint16_t *a, int64_t lead, const uint16_t *panel, float *c,
                       bool accumulate) {
    find<rows>(count)(depth, a, lead, panel, c, accumulate);
  }
};

} // namespace

#include "cpu/RecurrenceSteps.h"

namespace mpt::rt {
const RecurrenceKernels recurrenceBf16{
    "avx512-bf16", NR, true, Tile::depthUnit, packBlocks, runBlocks<ForwardStep>, runBlocks<BackwardStep>};
} // namespace mpt::rt
