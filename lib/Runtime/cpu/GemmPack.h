// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: packing, which widens to FP32.

namespace {

constexpr int64_t perLane = 1; // values of k in a lane of packed operands
template <typename T> constexpr bool isPacked = true;
constexpr bool inPanels = true;       // A whose columns are contiguous
constexpr int64_t deepest = depthMax; // lanes of a block
inline int64_t lanesOf(int64_t k) { return k; }
inline int64_t rowPitch(int64_t) { return lead; } // of packed rows of so many lanes
inline int64_t placeOf(int64_t row, int64_t lane, int64_t) { return row * lead + lane; }

inline Vec multiplyAdd(Vec a, Vec b, Vec c) { return Vec::fma(a, b, c); }

/// Rows of A as they lie (columns contiguous), widened; the rows up to a multiple of MR are zeroed.
template <typename T> void packRowsA(const void *from, int64_t row, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  int64_t padded = (m + MR - 1) / MR * MR;
  for (int64_t i = 0; i < m; ++i)
    widenRun(a + i * row, k, out + i * lead);
  for (int64_t i = m; i < padded; ++i)
    memset(out + i * lead, 0, static_cast<size_t>(k) * sizeof(float));
}

/// Columns of A contiguous: panels of MR rows, MR values for each k. Stores are a whole vector wide; each overlaps
/// the next one. `avail` is how many rows may be read.
template <typename T> void packPanelsA(const void *from, int64_t col, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  int64_t full = avail >= W ? (avail - W) / MR + 1 : 0, panels = (m + MR - 1) / MR;
  full = full < panels ? full : panels;
  for (int64_t p = 0; p < k; ++p) {
    const T *in = a + p * col;
    float *to = out + p * MR;
    for (int64_t q = 0; q < full; ++q)
      loadAs(in + q * MR).store(to + q * panelStride);
    for (int64_t q = full; q < panels; ++q) {
      int64_t left = m - q * MR;
      loadPart(in + q * MR, left < MR ? left : MR).store(to + q * panelStride);
    }
  }
}

/// B with rows contiguous: panels of NR columns, NR values for each k.
template <typename T> void packRowsB(const void *from, int64_t row, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  int64_t full = n / NR, left = n - full * NR;
  for (int64_t p = 0; p < k; ++p) {
    const T *in = b + p * row;
    float *to = out + p * NR;
    for (int64_t q = 0; q < full; ++q) {
      loadAs(in + q * NR).store(to + q * k * NR);
      loadAs(in + q * NR + W).store(to + q * k * NR + W);
    }
    if (left) {
      to += full * k * NR;
      in += full * NR;
      for (int64_t h = 0; h < 2; ++h) {
        int64_t count = left - h * W;
        Vec v = count >= W ? loadAs(in + h * W) : loadPart(in + h * W, count > 0 ? count : 0);
        v.store(to + h * W);
      }
    }
  }
}

/// B with columns contiguous: the same panels, transposed in blocks.
template <typename T> void packColumnsB(const void *from, int64_t col, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  for (int64_t j0 = 0; j0 < n; j0 += NR, out += k * NR) {
    int64_t cols = n - j0 < NR ? n - j0 : NR, p = 0;
    const T *in = b + j0 * col;
    if (cols == NR)
      p = transposePanel(in, col, k, NR, out);
    for (; p < k; ++p) {
      for (int64_t j = 0; j < cols; ++j)
        out[p * NR + j] = widen(in[j * col + p]);
      for (int64_t j = cols; j < NR; ++j)
        out[p * NR + j] = 0;
    }
  }
}

} // namespace
