// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: the register tile.

namespace {

constexpr int64_t thinCols = NR - NR / 4;    // more columns fill a tile well enough
constexpr Onto betweenBlocks = Onto::behind; // how sums of earlier blocks of k enter
constexpr int64_t partDepth = depthMax;      // deeper blocks are divided along k
constexpr int64_t sumPitch = partialPitch;   // of sums of earlier blocks
inline int64_t sumAt(int64_t row, int64_t column) { return row * sumPitch + column; }
constexpr bool sumsInTwoChains = false; // unless it is asked for

/// acc += a * b, R x NR, over every Step-th of k lanes of packed operands. Element (i, p) of A is a[i * lead + p] with
/// Rows, a[i + p * MR] otherwise. Row p of B starts at b + p * ldb.
template <int R, bool Rows, int Step = 1, typename T>
__attribute__((always_inline)) inline void multiply(int64_t k, const float *a, const T *b, int64_t ldb,
                                                    Vec (&acc)[R][2]) {
#pragma clang loop unroll_count(4)
  for (int64_t p = 0; p < k; p += Step) {
    Vec b0 = loadAs(b), b1 = loadAs(b + W);
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) {
      Vec x = Vec::broadcast(Rows ? a + i * lead : a + i);
      acc[i][0] = multiplyAdd(x, b0, acc[i][0]);
      acc[i][1] = multiplyAdd(x, b1, acc[i][1]);
    }
    a += Step * (Rows ? 1 : MR);
    b += Step * ldb;
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

/// acc += at most chainTerms products, as matrix tiles sum. `even` is memory.
template <int R, bool Rows, typename T>
__attribute__((always_inline)) inline void addInTwoChains(int64_t terms, const float *a, const T *b, int64_t ldb,
                                                          float *even, float *acc) {
  for (int64_t odd = 0; odd < 2; ++odd) {
    Vec chain[R][2];
    start(chain, nullptr, 0);
    multiply<R, Rows, 2>(terms - odd, a + odd * (Rows ? 1 : MR), b + odd * ldb, ldb, chain);
    asm volatile("" ::"r"(even) : "memory"); // which the compiler would keep in registers, and spill others
    for (int i = 0; i < R; ++i)
      for (int h = 0; h < 2; ++h) {
        const int64_t at = i * NR + h * W;
        if (!odd) {
          chain[i][h].store(even + at);
          continue;
        }
        if (terms < chainTerms) // zeros behind the last term: -0 becomes 0
          chain[i][h] = Vec::add(chain[i][h], Vec::zero());
        Vec::add(Vec::load(acc + at), Vec::add(Vec::load(even + at), chain[i][h])).store(acc + at);
      }
  }
}

/// acc += a * b, where subnormal numbers are flushed.
template <int R, bool Rows, typename T>
__attribute__((noinline)) void multiplyInTwoChains(int64_t k, const float *a, const T *b, int64_t ldb, float *acc) {
  alignas(64) float even[R * NR];
  for (; k >= chainTerms; k -= chainTerms, a += chainTerms * (Rows ? 1 : MR), b += chainTerms * ldb)
    addInTwoChains<R, Rows>(chainTerms, a, b, ldb, even, acc);
  if (k)
    addInTwoChains<R, Rows>(k, a, b, ldb, even, acc);
}

template <int R, bool Rows, typename T, bool TwoChains>
void tileEntry(int64_t k, const float *a, const void *b, int64_t ldb, float *c, int64_t ldc, Onto onto) {
  Vec acc[R][2];
  prefetchRows<R>(reinterpret_cast<const char *>(c), ldc * 4, NR * 4);
  start(acc, onto == Onto::before ? c : nullptr, ldc);
  if constexpr (TwoChains)
    multiplyInTwoChains<R, Rows>(k, a, static_cast<const T *>(b), ldb, reinterpret_cast<float *>(acc));
  else
    multiply<R, Rows>(k, a, static_cast<const T *>(b), ldb, acc);
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < 2; ++h) {
      float *p = c + i * ldc + h * W;
      (onto == Onto::behind ? Vec::add(Vec::load(p), acc[i][h]) : acc[i][h]).store(p);
    }
}

template <bool Rows, bool TwoChains, typename T>
void lastTile(int64_t k, const float *a, const float *b, const float *c, void *d, int64_t ldd, float alpha, Onto onto) {
  Vec acc[MR][2], scale = Vec::set(alpha);
  auto *out = static_cast<T *>(d);
  constexpr int64_t size = sizeof(T);
  prefetchRows<MR>(static_cast<const char *>(d), ldd * size, NR * size);
  if (c)
    prefetchRows<MR>(reinterpret_cast<const char *>(c), sumPitch * 4, NR * 4);
  start(acc, onto == Onto::before ? c : nullptr, sumPitch);
  if constexpr (TwoChains)
    multiplyInTwoChains<MR, Rows>(k, a, b, NR, reinterpret_cast<float *>(acc));
  else
    multiply<MR, Rows>(k, a, b, NR, acc);
  for (int i = 0; i < MR; ++i, out += ldd) {
    if (onto == Onto::behind)
      for (int h = 0; h < 2; ++h)
        acc[i][h] = Vec::add(Vec::load(c + i * sumPitch + h * W), acc[i][h]);
    storePair(Vec::mul(acc[i][0], scale), Vec::mul(acc[i][1], scale), out);
  }
}

/// The kernel for the last rows: the smallest of the instantiated heights that covers them.
template <bool Rows, typename T, bool TwoChains> TileFn tileFor(int64_t rows) {
  if (rows > (MR + 1) / 2 + MR / 6)
    return tileEntry<MR, Rows, T, TwoChains>;
  if (rows > MR / 3)
    return tileEntry<(MR + 1) / 2 + MR / 6, Rows, T, TwoChains>;
  if (rows > 1)
    return tileEntry < MR / 3 < 2 ? 2 : MR / 3, Rows, T, TwoChains > ;
  return tileEntry<1, Rows, T, TwoChains>;
}

template <typename T, bool TwoChains = false> TileFn anyTile(bool rowsA, int64_t rows) {
  return rowsA ? tileFor<true, T, TwoChains>(rows) : tileFor<false, T, TwoChains>(rows);
}

} // namespace
