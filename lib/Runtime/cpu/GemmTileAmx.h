// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: sums of 32 x 32 in four matrix tiles (AMX). Tiles 4 and 5 hold rows of A, 6 and 7 columns of B.

namespace {

constexpr int64_t thinCols = 4;              // more columns are worth a tile
constexpr Onto betweenBlocks = Onto::before; // loading sums costs less than adding them
constexpr int64_t partDepth = 128;           // whose part of a panel of B stays in the first cache
constexpr bool sumsInTwoChains = true;       // and in no other way
/// Sums of earlier blocks lie tile by tile.
constexpr int64_t sumPitch = NR;
inline int64_t sumAt(int64_t row, int64_t column) { return row / MR * MR * colsMax + column / NR * (MR * NR); }

/// Asks for the rows that a tile's results go to while its sums are computed.
template <int R> __attribute__((always_inline)) inline void prefetchRows(const char *p, int64_t pitch, int64_t bytes) {
  for (int i = 0; i < R; ++i, p += pitch) {
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + bytes - 1, 1);
  }
}

/// Leaves the sums in tiles: R times 16 rows. They go on from c, if any.
template <int R>
__attribute__((always_inline)) inline void multiplyTiles(int64_t depth, const float *a, const float *b, const float *c,
                                                         int64_t ldc) {
  const auto sums = static_cast<size_t>(ldc) * sizeof(float);
  constexpr size_t tile = 16 * sizeof(float), panel = NR * sizeof(float);
  if (c) {
    _tile_loadd(0, c, sums);
    _tile_loadd(1, c + 16, sums);
    if (R > 1) {
      _tile_loadd(2, c + 16 * ldc, sums);
      _tile_loadd(3, c + 16 * ldc + 16, sums);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < depth; p += depthUnit, a += depthUnit * MR, b += depthUnit * NR) {
    _tile_loadd(4, a, tile);
    _tile_loadd(6, b, panel);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 16, panel);
    _tile_dpbf16ps(1, 4, 7);
    if (R > 1) {
      _tile_loadd(5, a + 256, tile);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
}

template <int R> __attribute__((always_inline)) inline void storeTiles(float *c, int64_t ldc) {
  const auto pitch = static_cast<size_t>(ldc) * sizeof(float);
  _tile_stored(0, c, pitch);
  _tile_stored(1, c + 16, pitch);
  if (R > 1) {
    _tile_stored(2, c + 16 * ldc, pitch);
    _tile_stored(3, c + 16 * ldc + 16, pitch);
  }
}

template <int R>
void tileEntry(int64_t depth, const float *a, const void *b, int64_t ldb, float *c, int64_t ldc, Onto onto) {
  multiplyTiles<R>(depth, a, static_cast<const float *>(b), onto == Onto::before ? c : nullptr, ldc);
  if (onto != Onto::behind)
    return storeTiles<R>(c, ldc);
  alignas(64) float sums[MR * NR];
  storeTiles<R>(sums, NR);
  for (int64_t i = 0; i < 16 * R; ++i)
    for (int64_t j = 0; j < NR; j += W)
      Vec::add(Vec::load(c + i * ldc + j), Vec::load(sums + i * NR + j)).store(c + i * ldc + j);
}

template <bool Rows, bool TwoChains, typename T>
void lastTile(int64_t depth, const float *a, const float *b, const float *c, void *d, int64_t ldd, float alpha,
              Onto onto) {
  prefetchRows<MR>(static_cast<const char *>(d), ldd * static_cast<int64_t>(sizeof(T)), NR * sizeof(T));
  multiplyTiles<2>(depth, a, b, c, sumPitch);
  alignas(64) float sums[MR * NR];
  storeTiles<2>(sums, NR);
  const Vec scale = Vec::set(alpha);
  auto *out = static_cast<T *>(d);
  for (int i = 0; i < MR; ++i, out += ldd)
    storePair(Vec::mul(Vec::load(sums + i * NR), scale), Vec::mul(Vec::load(sums + i * NR + W), scale), out);
}

template <typename T, bool TwoChains = false> TileFn anyTile(bool rowsA, int64_t rows) {
  return rows > 16 ? tileEntry<2> : tileEntry<1>;
}

} // namespace
