// The packed GEMM, part 1 of 4: element types and packing. Parts 1 to 4 are written once over a vector type `Vec` that
// the including file defines in an anonymous namespace (with `tileRows`, `depthMax` and `rowsMax`). Blocking after Goto
// and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008; operands are widened to
// FP32 while they are packed.
//
// A sum over k is always taken in the same order, whatever the rectangle or thread: blocks of equal depth that depend
// on k alone, one fused multiply-add after the other inside a block.

namespace {

constexpr int W = Vec::width, NR = 2 * W, MR = tileRows;
constexpr int64_t colsMax = 1024;            // columns of a packed block of B
constexpr int64_t partialRows = 4 * rowsMax; // rows whose partial sums are kept when k needs several blocks
constexpr int64_t lead = depthMax + 16;      // row pitch of widened A: not a power of two
constexpr int64_t panelStride = MR * depthMax + W;
constexpr int64_t floatsA = (rowsMax + MR) * lead + (rowsMax / MR + 1) * W;
constexpr int64_t floatsB = depthMax * colsMax, floatsC = partialRows * colsMax;

// Element types as C++ types, so that templates can overload on them.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};

inline float widen(float x) { return x; }
inline float widen(F16 x) { return fromF16(x.bits); }
inline float widen(BF16 x) { return fromBF16(x.bits); }
inline float widen(E4M3 x) { return fromE4M3FN(x.bits); }
inline float widen(E5M2 x) { return fromE5M2(x.bits); }
inline void narrow(float x, float &d) { d = x; }
inline void narrow(float x, F16 &d) { d.bits = toF16(x); }
inline void narrow(float x, BF16 &d) { d.bits = toBF16(x); }
inline void narrow(float x, E4M3 &d) { d.bits = toE4M3FN(x); }
inline void narrow(float x, E5M2 &d) { d.bits = toE5M2(x); }

inline Vec loadAs(const float *p) { return Vec::load(p); }
inline Vec loadAs(const F16 *p) { return Vec::loadF16(reinterpret_cast<const uint16_t *>(p)); }
inline Vec loadAs(const BF16 *p) { return Vec::loadBF16(reinterpret_cast<const uint16_t *>(p)); }
template <typename T> inline Vec loadAs(const T *p) {
  float wide[W];
  for (int i = 0; i < W; ++i)
    wide[i] = widen(p[i]);
  return Vec::load(wide);
}
inline void storeAs(Vec v, float *p) { v.store(p); }
inline void storeAs(Vec v, F16 *p) { v.storeF16(reinterpret_cast<uint16_t *>(p)); }
inline void storeAs(Vec v, BF16 *p) { v.storeBF16(reinterpret_cast<uint16_t *>(p)); }
template <typename T> inline void storeAs(Vec v, T *p) {
  float wide[W];
  v.store(wide);
  for (int i = 0; i < W; ++i)
    narrow(wide[i], p[i]);
}

template <typename T> inline void storePair(Vec a, Vec b, T *p) {
  storeAs(a, p);
  storeAs(b, p + W);
}
inline void storePair(Vec a, Vec b, BF16 *p) { Vec::storePairBF16(a, b, reinterpret_cast<uint16_t *>(p)); }

/// The first n < W elements; the other lanes are zero.
template <typename T> inline Vec loadPart(const T *p, int64_t n) {
  float wide[W] = {};
  for (int64_t i = 0; i < n; ++i)
    wide[i] = widen(p[i]);
  return Vec::load(wide);
}

template <typename T> void widenRun(const T *in, int64_t n, float *out) {
  int64_t i = 0;
  for (; i + W <= n; i += W)
    loadAs(in + i).store(out + i);
  for (; i < n; ++i)
    out[i] = widen(in[i]);
}

/// Rows of A as they lie (columns contiguous), widened; the rows up to a multiple of MR are zeroed.
template <typename T> void packRowsA(const void *from, int64_t row, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  int64_t padded = (m + MR - 1) / MR * MR;
  for (int64_t i = 0; i < m; ++i)
    widenRun(a + i * row, k, out + i * lead);
  for (int64_t i = m; i < padded; ++i)
    memset(out + i * lead, 0, static_cast<size_t>(k) * sizeof(float));
}

/// Columns of A contiguous: panels of MR rows, MR values for each k. Stores are a whole vector wide; each overlaps what
/// the next one writes. `avail` is how many rows may be read.
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
      p = Vec::transposePanel(in, col, k, NR, out);
    for (; p < k; ++p) {
      for (int64_t j = 0; j < cols; ++j)
        out[p * NR + j] = widen(in[j * col + p]);
      for (int64_t j = cols; j < NR; ++j)
        out[p * NR + j] = 0;
    }
  }
}

} // namespace
