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
constexpr int64_t depthMax = 256; // of a panel's part that stays in the first cache

using Row = float[NR];

// ---- element types

inline void load(int64_t type, const void *base, int64_t at, int64_t n, float *to) {
  if (type == MPT_FLOAT32) {
    memcpy(to, static_cast<const float *>(base) + at, static_cast<size_t>(n) * 4);
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
    memcpy(static_cast<float *>(base) + at, from, static_cast<size_t>(n) * 4);
  else
    gemmKernels().narrow(type, from, n, static_cast<uint16_t *>(base) + at);
}

/// The weights' type: what products read is rounded to it.
inline int64_t productType(const Recurrence &r) { return r.desc->input_types[1]; }

/// Leaves values of one row for the products of the next step.
inline void leave(const Recurrence &r, int64_t i, const float *from, int64_t n, int64_t at) {
  if (r.direct)
    return;
  void *to = r.operand[i & 1];
  int64_t type = productType(r);
  if (sizeof(typename Tile::Element) == 2 || type == MPT_FLOAT32)
    return store(type, from, n, to, at);
  Row narrow;
  store(type, from, n, narrow, 0);
  load(type, narrow, 0, n, static_cast<float *>(to) + at);
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

/// c [rows, columns] = a times a panel, over all depths.
void product(const typename Tile::Element *a, int64_t lead, int64_t rows, int64_t depth,
             const typename Tile::Element *panel, float *c) {
  for (int64_t k = 0; k < depth; k += depthMax) {
    int64_t part = depth - k < depthMax ? depth - k : depthMax;
    // Tiles of equal heights, so that none is small.
    int64_t tiles = (rows + Tile::rows - 1) / Tile::rows;
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t from = rows * t / tiles, to = rows * (t + 1) / tiles;
      Tile::multiply(to - from, part, a + from * lead + k, lead, panel + k * NR, c + from * NR, k != 0);
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

/// What the products of step i read, from row 0 on.
inline const typename Tile::Element *operandOf(const Recurrence &r, const void *direct, int64_t i) {
  return static_cast<const typename Tile::Element *>(r.direct && direct ? direct : r.operand[i & 1]);
}

inline const char *offset(const void *base, int64_t type, int64_t elements) {
  return static_cast<const char *>(base) + elements * (type == MPT_FLOAT32 ? 4 : 2);
}

} // namespace
