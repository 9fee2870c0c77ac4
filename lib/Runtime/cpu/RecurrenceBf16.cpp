// SPDX-License-Identifier: Apache-2.0
// Recurrences with BF16 weights on processors that multiply BF16: pairs of products, summed in FP32.
#include "cpu/Recurrence.h"
#include "cpu/RecurrenceTileRows.h"

#include <immintrin.h>

namespace {

struct Tile {
  using Element = uint16_t;
  static constexpr int columns = 32, rows = 12;
  static constexpr int64_t pair = 2, depthUnit = 2, chunk = chunkOf<Element>;
  static void finish() {}

  using MultiplyRows = void(int64_t, const uint16_t *, int64_t, const uint16_t *, float *, bool);
  template <int R>
  static void multiplyRows(int64_t depth, const uint16_t *a, int64_t stride, const uint16_t *panel, float *c,
                           bool accumulate) {
    __m512 acc[R][2];
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        acc[i][h] = accumulate ? _mm512_loadu_ps(c + i * columns + h * 16) : _mm512_setzero_ps();
    auto one = [&](const uint16_t *x, const uint16_t *b) __attribute__((always_inline)) {
      auto b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 32);
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i) {
        int pair;
        __builtin_memcpy(&pair, x + i * chunk, 4);
        auto both = (__m512bh)_mm512_set1_epi32(pair);
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], both, b0);
        acc[i][1] = _mm512_dpbf16_ps(acc[i][1], both, b1);
      }
    };
    int64_t k = 0;
    for (; k + chunk <= depth; k += chunk, a += stride) {
#pragma clang loop unroll_count(4)
      for (int64_t j = 0; j < chunk; j += 2)
        one(a + j, panel + (k + j) * columns);
    }
    for (int64_t j = 0; k + j < depth; j += 2)
      one(a + j, panel + (k + j) * columns);
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        _mm512_storeu_ps(c + i * columns + h * 16, acc[i][h]);
  }

  static void multiply(int64_t count, int64_t depth, const uint16_t *a, int64_t stride, const uint16_t *panel, float *c,
                       bool accumulate) {
    multiplyOf<Tile>(count)(depth, a, stride, panel, c, accumulate);
  }
};

} // namespace

#include "cpu/RecurrenceSteps.h"

namespace mpt::rt {
const RecurrenceKernels recurrenceBf16{
    "avx512-bf16", NR, true, Tile::depthUnit, packBlocks, runBlocks<ForwardStep>, runBlocks<BackwardStep>};
} // namespace mpt::rt
