// SPDX-License-Identifier: Apache-2.0
// The register tile of FP32 products in recurrences, over vectors of `W` floats (defined by the including file).

namespace {

struct Tile {
  using Element = float;
  static constexpr int columns = 2 * W, rows = tileRows;
  static constexpr int64_t pair = 1, depthUnit = 1;
  static void finish() {}

  using Vector __attribute__((vector_size(4 * W), aligned(4))) = float;

  template <int R>
  static void multiplyRows(int64_t depth, const float *a, int64_t lead, const float *panel, float *c, bool accumulate) {
    Vector acc[R][2];
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        acc[i][h] = accumulate ? *reinterpret_cast<const Vector *>(c + i * columns + h * W) : Vector{};
#pragma clang loop unroll_count(4)
    for (int64_t k = 0; k < depth; ++k) {
      Vector b0 = *reinterpret_cast<const Vector *>(panel + k * columns);
      Vector b1 = *reinterpret_cast<const Vector *>(panel + k * columns + W);
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i) {
        float x = a[i * lead + k];
        acc[i][0] += x * b0;
        acc[i][1] += x * b1;
      }
    }
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<Vector *>(c + i * columns + h * W) = acc[i][h];
  }

  template <int R> static auto find(int64_t count) {
    using Fn = void (*)(int64_t, const float *, int64_t, const float *, float *, bool);
    if constexpr (R == 1)
      return static_cast<Fn>(multiplyRows<1>);
    else
      return count == R ? static_cast<Fn>(multiplyRows<R>) : find<R - 1>(count);
  }

  /// c [count, columns] = [c +] a times a panel.
  static void multiply(int64_t count, int64_t depth, const float *a, int64_t lead, const float *panel, float *c,
                       bool accumulate) {
    find<rows>(count)(depth, a, lead, panel, c, accumulate);
  }
};

} // namespace
