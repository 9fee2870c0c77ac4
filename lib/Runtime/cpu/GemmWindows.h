// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: sums over windows of an image, which is read in place (see Windows).

namespace {

/// sums (R x NR) = the windows that begin at `at`, times H vectors of filters.
template <int R, int H> void windowTile(const Windows &w, const float *const *at, float *sums) {
  Vec acc[R][H];
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < H; ++h)
      acc[i][h] = Vec::zero();
  for (int64_t t0 = 0; t0 < w.taps[0]; ++t0)
    for (int64_t t1 = 0; t1 < w.taps[1]; ++t1)
      for (int64_t t2 = 0; t2 < w.taps[2]; ++t2) {
        const int64_t shift = t0 * w.tapPitch[0] + t1 * w.tapPitch[1] + t2 * w.tapPitch[2];
        const float *b = w.filters + t0 * w.filterPitch[0] + t1 * w.filterPitch[1] + t2 * w.filterPitch[2], *a[R];
        for (int i = 0; i < R; ++i)
          a[i] = at[i] + shift;
#pragma clang loop unroll_count(2)
        for (int64_t p = 0; p < w.channels; ++p, b += w.channelPitch) {
          Vec part[H];
          for (int h = 0; h < H; ++h)
            part[h] = Vec::load(b + h * W);
#pragma clang loop unroll(full)
          for (int i = 0; i < R; ++i) {
            Vec x = Vec::broadcast(a[i] + p);
            for (int h = 0; h < H; ++h)
              acc[i][h] = Vec::fma(x, part[h], acc[i][h]);
          }
        }
      }
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < H; ++h)
      acc[i][h].store(sums + i * NR + h * W);
}

/// Tiles of R windows; the last one repeats its last window.
template <int R, int H> void windowTiles(const Windows &w, int64_t first, int64_t last) {
  const Operand &out = operand(w.type);
  const Epilogue e{w.flags, 1, w.bias};
  int64_t at[4], rest = first;
  for (int i = 4; i-- > 0; rest /= w.extent[i])
    at[i] = rest % w.extent[i];
  alignas(64) float sums[R * NR];
  for (int64_t row = first; row < last; row += R) {
    const float *from[R];
    char *result[R];
    const int64_t rows = last - row < R ? last - row : R;
    for (int64_t i = 0; i < R; ++i) {
      from[i] = i < rows ? w.image : from[i - 1];
      result[i] = static_cast<char *>(w.to);
      for (int d = 0; d < 4 && i < rows; ++d) {
        from[i] += at[d] * w.pitch[d];
        result[i] += at[d] * w.step[d] * out.size;
      }
      for (int d = 4; d-- > 0 && i < rows;) {
        if (++at[d] < w.extent[d])
          break;
        at[d] = 0;
      }
    }
    windowTile<R, H>(w, from, sums);
    for (int64_t i = 0, n; i < rows; i += n) {
      for (n = 1; i + n < rows && result[i + n] == result[i] + n * w.step[3] * out.size;)
        ++n;
      out.finish(sums + i * NR, NR, result[i], w.step[3], n, w.columns, e, 0);
    }
  }
}

void runWindows(const Windows &w, int64_t first, int64_t last) {
  if (w.columns > W)
    windowTiles<MR, 2>(w, first, last);
  else
    windowTiles<8, 1>(w, first, last);
}

void packColumns(int64_t dtype, const void *from, int64_t pitch, int64_t k, int64_t n, float *out) {
  operand(dtype).packColumnsB(from, pitch, k, n, out);
}

} // namespace
