// SPDX-License-Identifier: Apache-2.0
// Rows of a block of the hidden dimension: loads and stores by element type, functions, and the sums that a `Tile`
// makes.

#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cstring>

namespace {

using namespace mpt::rt;

constexpr int NR = Tile::columns;
constexpr int64_t rowsMax = 48;   // whose sums are kept at a time
constexpr int64_t depthMax = 256; // of a panel's part: two stay in the first cache, one of them fetched ahead

using Row = float[NR];

// ---- element types

using WholeRow __attribute__((vector_size(NR * 4), aligned(4))) = float;

/// Copies a row; whole ones, as most are, in registers.
inline void copyRow(const float *from, int64_t n, float *to) {
  if (n == NR)
    *reinterpret_cast<WholeRow *>(to) = *reinterpret_cast<const WholeRow *>(from);
  else
    memcpy(to, from, static_cast<size_t>(n) * 4);
}

/// Spelled out, since `from` and `to` may overlap for all that a compiler knows.
inline void addRow(const float *from, Row &to) {
  *reinterpret_cast<WholeRow *>(to) += *reinterpret_cast<const WholeRow *>(from);
}

inline void load(int64_t type, const void *base, int64_t at, int64_t n, float *to) {
  if (type == MPT_FLOAT32) {
    copyRow(static_cast<const float *>(base) + at, n, to);
  } else if (type == MPT_BFLOAT16) {
    auto *from = static_cast<const uint16_t *>(base) + at;
    for (int64_t j = 0; j < n; ++j) {
      uint32_t bits = static_cast<uint32_t>(from[j]) << 16;
      memcpy(to + j, &bits, 4);
    }
  } else {
    gemmKernels().widen(type, static_cast<const uint16_t *>(base) + at, n, to);
  }
}

inline void store(int64_t type, const float *from, int64_t n, void *base, int64_t at) {
  if (type == MPT_FLOAT32)
    copyRow(from, n, static_cast<float *>(base) + at);
  else
    gemmKernels().narrow(type, from, n, static_cast<uint16_t *>(base) + at);
}

/// Rows whose memory is fetched while products are made, a few before each of `tiles` tiles.
struct Ahead {
  int64_t rows, each, done = 0;
  Ahead(int64_t rows, int64_t tiles) : rows(rows), each((rows + tiles - 1) / tiles) {}
  template <typename F> void next(F fetch) {
    for (int64_t end = done + each < rows ? done + each : rows; done < end; ++done)
      fetch(done);
  }
};

template <bool toWrite> inline void fetchRow(int64_t type, const void *base, int64_t at) {
  const char *first = static_cast<const char *>(base) + at * (type == MPT_FLOAT32 ? 4 : 2);
  for (int64_t byte = 0; byte < NR * (type == MPT_FLOAT32 ? 4 : 2); byte += 64)
    __builtin_prefetch(first + byte, toWrite, 2);
}

/// The weights' type: operands of products are rounded to it.
inline int64_t productType(const Recurrence &r) { return r.desc->input_types[1]; }

// ---- operands of products: [gates, chunks of the hidden dimension, batch, chunk]

using Element = typename Tile::Element;
constexpr int64_t chunk = Tile::chunk;

inline Element *operandAt(const Recurrence &r, void *operand, int64_t gate, int64_t row, int64_t column) {
  int64_t chunks = (r.desc->hidden + chunk - 1) / chunk;
  return static_cast<Element *>(operand) + ((gate * chunks + column / chunk) * r.desc->batch + row) * chunk +
         column % chunk;
}

/// Leaves values of one row of gate `gate`, or of a state, rounded as products read them.
inline void leave(const Recurrence &r, void *operand, int64_t gate, const Row &from, int64_t n, int64_t row,
                  int64_t column) {
  int64_t type = productType(r);
  Element values[NR] = {};
  if (sizeof(Element) == 2 || type == MPT_FLOAT32) {
    store(type, from, n, values, 0);
  } else {
    Row narrow;
    store(type, from, n, narrow, 0);
    load(type, narrow, 0, n, reinterpret_cast<float *>(values));
  }
  constexpr int64_t piece = NR < chunk ? NR : chunk;
  for (int64_t j = 0; j < n; j += piece)
    memcpy(operandAt(r, operand, gate, row, column + j), values + j, sizeof(Element) * piece);
}

// ---- functions, on a row of a block

/// e^x - 1 = scale * part + (scale - 1), scale a power of two.
inline float expParts(float x, float &scale) {
  const float shift = 12582912; // 1.5 * 2^23: rounds to an integer, which is in the low bits
  float shifted = x * 1.44269504f + shift, n = shifted - shift;
  float y = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  uint32_t bits;
  memcpy(&bits, &shifted, 4);
  bits = (bits + 127) << 23;
  memcpy(&scale, &bits, 4);
  float p = 1.0f / 5040;
  p = p * y + 1.0f / 720;
  p = p * y + 1.0f / 120;
  p = p * y + 1.0f / 24;
  p = p * y + 1.0f / 6;
  p = p * y + 0.5f;
  return p * y * y + y;
}

inline float within(float x, float most) { return x > most ? most : x < -most ? -most : x; }

inline void sigmoid(Row &v) {
  for (int j = 0; j < NR; ++j) {
    float scale, part = expParts(within(-v[j], 88), scale);
    v[j] = 1 / (1 + (scale * part + scale));
  }
}

inline void tangent(const Row &x, Row &v) {
  for (int j = 0; j < NR; ++j) {
    float scale, part = expParts(within(2 * x[j], 40), scale), e = scale * part + (scale - 1);
    v[j] = e / (e + 2);
  }
}

// ---- products

/// Tiles of a product of so many rows, over all depths.
inline int64_t tilesOf(int64_t rows, int64_t depth) {
  return (depth + depthMax - 1) / depthMax * ((rows + Tile::rows - 1) / Tile::rows);
}

/// c [rows, columns] = [c +] a times a panel, over all depths. Chunks of a are `stride` apart. Calls `beforeTile` so
/// often as `tilesOf` says.
template <typename F>
void product(const Element *a, int64_t stride, int64_t rows, int64_t depth, const Element *panel, float *c,
             bool accumulate, F beforeTile) {
  for (int64_t k = 0; k < depth; k += depthMax) {
    int64_t part = depth - k < depthMax ? depth - k : depthMax;
    int64_t tiles = (rows + Tile::rows - 1) / Tile::rows;
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t from = rows * t / tiles, to = rows * (t + 1) / tiles;
      beforeTile();
      Tile::multiply(to - from, part, a + k / chunk * stride + from * chunk, stride, panel + k * NR, c + from * NR,
                     accumulate || k != 0);
    }
  }
}

/// A block of the hidden dimension, and some rows of the batch.
struct Part {
  int64_t first, width; ///< columns
  int64_t row, rows;
};

template <typename F> void eachPart(const Recurrence &r, int64_t block, F visit) {
  int64_t first = block * NR, width = r.desc->hidden - first < NR ? r.desc->hidden - first : NR;
  for (int64_t row = 0; row < r.desc->batch; row += rowsMax)
    visit(Part{first, width, row, r.desc->batch - row < rowsMax ? r.desc->batch - row : rowsMax});
}

} // namespace
