// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: block sizes, element types, and conversions of vectors and runs of them.

namespace {

constexpr int64_t chainTerms = 32; // with MPT_GEMM_TWO_CHAINS, even and odd ones
constexpr int W = Vec::width, NR = 2 * W, MR = tileRows;
constexpr int64_t colsMax = 1024; // columns of a packed block of B
// Rows whose partial sums are kept when k needs several blocks: B is packed anew for each lot of them.
constexpr int64_t partialRows = 12 * rowsMax;
constexpr int64_t partialPitch = colsMax + 16; // not a power of two, so that rows do not share cache sets
constexpr int64_t lead = depthMax + 16;        // row pitch of widened A: not a power of two
constexpr int64_t panelStride = MR * depthMax + W;
constexpr int64_t floatsA = (rowsMax + MR) * lead + (rowsMax / MR + 1) * W;
constexpr int64_t floatsB = depthMax * colsMax, floatsC = partialRows * partialPitch;

/// The largest multiple of `tile` up to extent / parts, at least one.
inline int64_t share(int64_t extent, int64_t parts, int64_t tile) {
  return extent / parts < tile ? tile : extent / parts / tile * tile;
}
/// Rows and columns of a block: a deep block has fewer, so that as much of a cache holds it.
inline int64_t blockRows(int64_t lanes) {
  return share(rowsMax, lanes > depthMax ? (lanes - 1) / depthMax + 1 : 1, MR);
}
inline int64_t blockCols(int64_t lanes) {
  return share(colsMax, lanes > depthMax ? (lanes - 1) / depthMax + 1 : 1, NR);
}

/// How the sums that lie in memory enter a tile.
enum class Onto { nothing, behind, before }; // `before`: its sums go on from them

/// c (R x NR) = [c +] a * b.
using TileFn = void (*)(int64_t k, const float *a, const void *b, int64_t ldb, float *c, int64_t ldc, Onto onto);

/// d (MR x NR) = alpha * ([c +] a * b), rounded to d's type: the way out of whole tiles without an epilogue.
using LastFn = void (*)(int64_t k, const float *a, const float *b, const float *c, void *d, int64_t ldd, float alpha,
                        Onto onto);

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
/// An FP32 value that is read as `T` has it: exactly the value of a copy in that type.
template <typename T> struct Rounded {
  float value;
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

template <typename T> inline float widen(Rounded<T> x) {
  T rounded;
  narrow(x.value, rounded);
  return widen(rounded);
}

inline Vec loadAs(const float *p) { return Vec::load(p); }
inline Vec loadAs(const F16 *p) { return Vec::loadF16(reinterpret_cast<const uint16_t *>(p)); }
inline Vec loadAs(const BF16 *p) { return Vec::loadBF16(reinterpret_cast<const uint16_t *>(p)); }
inline Vec loadAs(const E4M3 *p) { return Vec::loadE4M3(reinterpret_cast<const uint8_t *>(p)); }
inline Vec loadAs(const E5M2 *p) { return Vec::loadE5M2(reinterpret_cast<const uint8_t *>(p)); }
inline Vec loadAs(const Rounded<F16> *p) { return Vec::load(&p->value).asF16(); }
inline Vec loadAs(const Rounded<BF16> *p) { return Vec::load(&p->value).asBF16(); }
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

} // namespace
