// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: the register tile.

namespace {

constexpr int64_t thinCols = NR - NR / 4;    // more columns fill a tile well enough
constexpr Onto betweenBlocks = Onto::behind; // how sums of earlier blocks of k enter
constexpr int64_t partDepth = depthMax;      // deeper blocks are divided along k
constexpr int64_t sumPitch = partialPitch;   // of sums of earlier blocks
inline int64_t sumAt(int64_t row, int64_t column) { return row * sumPitch + column; }

/// acc += a * b, R x NR, over k lanes of packed operands. Element (i, p) of A is a[i * lead + p] with Rows, a[i + p *
/// MR] otherwise. Row p of B starts at b + p * ldb.
template <int R, bool Rows, typename T>
__attribute__((always_inline)) inline void multiply(int64_t k, const float *a, const T *b, int64_t ldb,
                                                    Vec (&acc)[R][2]) {
#pragma clang loop unroll_count(4)
  for (int64_t p = 0; p < k; ++p) {
    Vec b0 = loadAs(b), b1 = loadAs(b + W);
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) {
      Vec x = Vec::broadcast(Rows ? a + i * lead : a + i);
      acc[i][0] = multiplyAdd(x, b0, acc[i][0]);
      acc[i][1] = multiplyAdd(x, b1, acc[i][1]);
    }
    a += Rows ? 1 : MR;
    b += ldb;
  }
}

/// Asks for the rows that a tile's results go to while its sums are computed.
template <int R> __attribute__((always_inline)) inline void prefetchRows(const char *p, int64_t pitch, int64_t bytes) {
  for (int i = 0; i < R; ++i, p += pitch) {
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + bytes - 1, 1);
  }
}

template <int R> __attribute__((always_inline)) inline void start(Vec (&acc)[R][2], const float *c, int64_t pitch) {
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < 2; ++h)
      acc[i][h] = c ? Vec::load(c + i * pitch + h * W) : Vec::zero();
}

template <int R, bool Rows, typename T>
void tileEntry(int64_t k, const float *a, const void *b, int64_t ldb, float *c, int64_t ldc, Onto onto) {
  Vec acc[R][2];
  prefetchRows<R>(reinterpret_cast<const char *>(c), ldc * 4, NR * 4);
  start(acc, onto == Onto::before ? c : nullptr, ldc);
  multiply<R, Rows>(k, a, static_cast<const T *>(b), ldb, acc);
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < 2; ++h) {
      float *p = c + i * ldc + h * W;
      (onto == Onto::behind ? Vec::add(Vec::load(p), acc[i][h]) : acc[i][h]).store(p);
    }
}

template <bool Rows, typename T>
void lastTile(int64_t k, const float *a, const float *b, const float *c, void *d, int64_t ldd, float alpha, Onto onto) {
  Vec acc[MR][2], scale = Vec::set(alpha);
  auto *out = static_cast<T *>(d);
  constexpr int64_t size = sizeof(T);
  prefetchRows<MR>(static_cast<const char *>(d), ldd * size, NR * size);
  if (c)
    prefetchRows<MR>(reinterpret_cast<const char *>(c), sumPitch * 4, NR * 4);
  start(acc, onto == Onto::before ? c : nullptr, sumPitch);
  multiply<MR, Rows>(k, a, b, NR, acc);
  for (int i = 0; i < MR; ++i, out += ldd) {
    if (onto == Onto::behind)
      for (int h = 0; h < 2; ++h)
        acc[i][h] = Vec::add(Vec::load(c + i * sumPitch + h * W), acc[i][h]);
    storePair(Vec::mul(acc[i][0], scale), Vec::mul(acc[i][1], scale), out);
  }
}

/// The kernel for the last rows: the smallest of the instantiated heights that covers them.
template <bool Rows, typename T> TileFn tileFor(int64_t rows) {
  if (rows > (MR + 1) / 2 + MR / 6)
    return tileEntry<MR, Rows, T>;
  if (rows > MR / 3)
    return tileEntry<(MR + 1) / 2 + MR / 6, Rows, T>;
  if (rows > 1)
    return tileEntry < MR / 3 < 2 ? 2 : MR / 3, Rows, T > ;
  return tileEntry<1, Rows, T>;
}

template <typename T> TileFn anyTile(bool rowsA, int64_t rows) {
  if (rows == MR)
    return rowsA ? tileEntry<MR, true, T> : tileEntry<MR, false, T>;
  return rowsA ? tileFor<true, T>(rows) : tileFor<false, T>(rows);
}

} // namespace
