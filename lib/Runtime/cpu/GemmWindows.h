// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: sums over windows of an image, which is read in place (see Windows).

namespace {

template <int R, int H> __attribute__((always_inline)) inline void clear(Vec (&acc)[R][H]) {
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < H; ++h)
      acc[i][h] = Vec::zero();
}

/// acc += channel p of R windows times a row of H vectors of filters.
template <int R, int H>
__attribute__((always_inline)) inline void addChannel(const float *const *a, int64_t p, const float *b,
                                                      Vec (&acc)[R][H]) {
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

/// sums (R x NR) = the windows that begin at `at`, times H vectors of filters.
template <int R, int H> void windowTile(const Windows &w, const float *const *at, float *sums) {
  Vec acc[R][H];
  clear(acc);
  for (int64_t t = 0; t < w.count; ++t) {
    const float *b = w.filters + w.taps[t].filter, *a[R];
    for (int i = 0; i < R; ++i)
      a[i] = at[i] + w.taps[t].image;
#pragma clang loop unroll_count(2)
    for (int64_t p = 0; p < w.channels; ++p, b += w.channelPitch)
      addChannel(a, p, b, acc);
  }
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < H; ++h)
      acc[i][h].store(sums + i * NR + h * W);
}

/// The same as matrix tiles sum.
template <int R, int H> void windowTileInTwoChains(const Windows &w, const float *const *at, float *sums) {
  alignas(64) float even[R * NR];
  memset(sums, 0, R * NR * sizeof(float));
  for (int64_t t = 0; t < w.count; ++t) {
    const float *b = w.filters + w.taps[t].filter, *a[R];
    for (int i = 0; i < R; ++i)
      a[i] = at[i] + w.taps[t].image;
    for (int64_t p = 0; p < w.channels; p += chainTerms, b += chainTerms * w.channelPitch)
      for (int64_t odd = 0; odd < 2; ++odd) {
        Vec acc[R][H];
        clear(acc);
        const float *row = b + odd * w.channelPitch;
        for (int64_t q = odd; q < chainTerms; q += 2, row += 2 * w.channelPitch)
          addChannel(a, p + q, row, acc);
        asm volatile("" ::: "memory"); // sums stay there, or the compiler keeps copies beside them
        for (int i = 0; i < R; ++i)
          for (int h = 0; h < H; ++h) {
            const int64_t at = i * NR + h * W;
            if (odd)
              Vec::add(Vec::load(sums + at), Vec::add(Vec::load(even + at), acc[i][h])).store(sums + at);
            else
              acc[i][h].store(even + at);
          }
      }
  }
}

/// Walks through places in four dimensions, from one on.
struct WindowWalk {
  WindowWalk(const Windows &w, int64_t first) : w(w), size(operand(w.type).size) {
    for (int d = 4; d-- > 0; first /= w.extent[d])
      at[d] = first % w.extent[d];
  }
  /// Where the window at the place begins, and its result; goes on to the next place.
  void next(const float *&from, char *&result) {
    from = w.image;
    result = static_cast<char *>(w.to);
    for (int d = 0; d < 4; ++d) {
      from += at[d] * w.pitch[d];
      result += at[d] * w.step[d] * size;
    }
    for (int d = 4; d-- > 0 && ++at[d] == w.extent[d];)
      at[d] = 0;
  }

  const Windows &w;
  const int64_t size;
  int64_t at[4];
};

/// Tiles of R windows; the last one repeats its last window.
template <int R, int H> void windowTiles(const Windows &w, int64_t first, int64_t last) {
  const Operand &out = operand(w.type);
  const Epilogue e{w.flags, 1, w.bias};
  WindowWalk walk(w, first);
  const FlushSubnormals flush(w.twoChains);
  alignas(64) float sums[R * NR];
  for (int64_t row = first; row < last; row += R) {
    const float *from[R];
    char *result[R];
    const int64_t rows = last - row < R ? last - row : R;
    for (int64_t i = 0; i < R; ++i)
      if (i < rows)
        walk.next(from[i], result[i]);
      else
        from[i] = from[i - 1];
    (w.twoChains ? windowTileInTwoChains<R, H> : windowTile<R, H>)(w, from, sums);
    flush.reset();
    for (int64_t i = 0, n; i < rows; i += n) {
      for (n = 1; i + n < rows && result[i + n] == result[i] + n * w.step[3] * out.size;)
        ++n;
      out.finish(sums + i * NR, NR, result[i], w.step[3], n, w.columns, e, 0);
    }
    flush.set();
  }
}

void runWindows(const Windows &w, int64_t first, int64_t last) {
  if (w.columns > W)
    windowTiles<MR, 2>(w, first, last);
  else
    windowTiles<8, 1>(w, first, last);
}

/// sums (V x W x R) = W windows that begin at each of `at`, times R columns of filters.
template <int R, int V> void lineTile(const Windows &w, const float *const *at, float *sums) {
  Vec acc[V][R];
  for (int v = 0; v < V; ++v)
    for (int r = 0; r < R; ++r)
      acc[v][r] = Vec::zero();
  for (int64_t t = 0; t < w.count; ++t) {
    const float *b = w.filters + w.taps[t].filter, *a[V];
    for (int v = 0; v < V; ++v)
      a[v] = at[v] + w.taps[t].image;
    for (int64_t p = 0; p < w.channels; ++p, b += w.channelPitch) {
      Vec part[V];
      for (int v = 0; v < V; ++v)
        part[v] = Vec::load(a[v] + p * w.planePitch);
#pragma clang loop unroll(full)
      for (int r = 0; r < R; ++r) {
        Vec x = Vec::broadcast(b + r);
        for (int v = 0; v < V; ++v)
          acc[v][r] = Vec::fma(x, part[v], acc[v][r]);
      }
    }
  }
  for (int v = 0; v < V; ++v, sums += W * R) {
    float rows[R][W];
    for (int r = 0; r < R; ++r)
      acc[v][r].store(rows[r]);
    for (int i = 0; i < W; ++i)
      for (int r = 0; r < R; ++r)
        sums[i * R + r] = rows[r][i];
  }
}

/// Lines, V times W windows at a time.
template <int R> void lineTiles(const Windows &w, int64_t first, int64_t last) {
  constexpr int V = 2 * MR / R;
  const Operand &out = operand(w.type);
  const bool dense = w.columns == R && w.step[3] == R; // all results of a vector lie side by side
  float bias[W * R] = {};
  for (int64_t i = 0; w.bias && i < W * R && (dense || i < w.columns); ++i)
    bias[i] = w.bias[i % R];
  const Epilogue e{w.flags, 1, w.bias ? bias : nullptr};
  Windows lines = w;
  lines.extent[3] = (w.extent[3] + W - 1) / W, lines.pitch[3] = W, lines.step[3] = W * w.step[3];
  const int64_t parts = lines.extent[3], end = last * parts;
  WindowWalk walk(lines, first * parts);
  alignas(64) float sums[V * W * R + W];
  for (int64_t part = first * parts; part < end; part += V) {
    const float *from[V];
    char *result[V];
    const int64_t count = end - part < V ? end - part : V;
    for (int64_t v = 0; v < V; ++v)
      if (v < count)
        walk.next(from[v], result[v]);
      else
        from[v] = from[v - 1];
    lineTile<R, V>(w, from, sums);
    for (int64_t v = 0; v < count; ++v) {
      const int64_t before = (part + v) % parts * W, n = w.extent[3] - before < W ? w.extent[3] - before : W;
      if (dense)
        out.finish(sums + v * W * R, 0, result[v], 0, 1, n * R, e, 0);
      else
        out.finish(sums + v * W * R, R, result[v], w.step[3], n, w.columns, e, 0);
    }
  }
}

void runLines(const Windows &w, int64_t first, int64_t last) {
  if (w.columns > lineColumns / 2)
    lineTiles<lineColumns>(w, first, last);
  else
    lineTiles<lineColumns / 2>(w, first, last);
}

void packColumns(int64_t dtype, const void *from, int64_t pitch, int64_t k, int64_t n, float *out) {
  operand(dtype).packColumnsB(from, pitch, k, n, out);
}

} // namespace
