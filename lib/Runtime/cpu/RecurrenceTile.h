// SPDX-License-Identifier: Apache-2.0
// The register tile of FP32 products in recurrences, over vectors of `W` floats (defined by the including file).

#include "cpu/RecurrenceTileRows.h"

namespace {

struct Tile {
  using Element = float;
  static constexpr int columns = 2 * W, rows = tileRows;
  static constexpr int64_t chunk = chunkOf<Element>;
  static constexpr int64_t pair = 1, depthUnit = 1;
  static void finish() {}

  using Vector __attribute__((vector_size(4 * W), aligned(4))) = float;

  using MultiplyRows = void(int64_t, const float *, int64_t, const float *, float *, bool);
  template <int R>
  static void multiplyRows(int64_t depth, const float *a, int64_t stride, const float *panel, float *c,
                           bool accumulate) {
    Vector acc[R][2];
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        acc[i][h] = accumulate ? *reinterpret_cast<const Vector *>(c + i * columns + h * W) : Vector{};
    auto one = [&](const float *x, const float *b) __attribute__((always_inline)) {
      Vector b0 = *reinterpret_cast<const Vector *>(b), b1 = *reinterpret_cast<const Vector *>(b + W);
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i) {
        acc[i][0] += x[i * chunk] * b0;
        acc[i][1] += x[i * chunk] * b1;
      }
    };
    int64_t k = 0;
    for (; k + chunk <= depth; k += chunk, a += stride) {
#pragma clang loop unroll_count(4)
      for (int64_t j = 0; j < chunk; ++j)
        one(a + j, panel + (k + j) * columns);
    }
    for (int64_t j = 0; k + j < depth; ++j)
      one(a + j, panel + (k + j) * columns);
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<Vector *>(c + i * columns + h * W) = acc[i][h];
  }

  /// c [count, columns] = [c +] a times a panel. Chunks of a are `stride` apart.
  static void multiply(int64_t count, int64_t depth, const float *a, int64_t stride, const float *panel, float *c,
                       bool accumulate) {
    multiplyOf<Tile>(count)(depth, a, stride, panel, c, accumulate);
  }
};

} // namespace
