// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: packing of 8-bit operands, which widens to BF16. A lane of 32 bits holds two values that are
// neighbours along k, the first in the lower half; an odd k ends with a zero. BF16 has every value of E4M3 and E5M2.

namespace {

constexpr int64_t perLane = 2; // values of k in a lane of packed operands
template <typename T> constexpr bool isPacked = sizeof(T) == 1;

/// c + a * b, both products of each lane. The instruction takes subnormal numbers for zero, and makes zero of them.
/// There are none: operands are multiples of 2^-16, so that products and their sums are multiples of 2^-32.
inline Vec multiplyAdd(Vec a, Vec b, Vec c) {
  return {_mm512_dpbf16_ps(c.v, __builtin_bit_cast(__m512bh, a.v), __builtin_bit_cast(__m512bh, b.v))};
}

/// BF16 of the 128 codes of an 8-bit type without their sign.
template <typename T> const uint16_t *magnitudes() {
  struct Table {
    alignas(64) uint16_t bits[128];
    Table() {
      for (int i = 0; i < 128; ++i)
        bits[i] = toBF16(widen(T{static_cast<uint8_t>(i)}));
    }
  };
  static const Table table;
  return table.bits;
}

/// Widens codes by a table in four registers.
template <typename T> class Codes {
  __m512i table[4];

public:
  Codes() {
    for (int i = 0; i < 4; ++i)
      table[i] = _mm512_loadu_si512(magnitudes<T>() + 32 * i);
  }
  /// Stores 16 lanes, whose codes are in the lower bytes of each half.
  void store(__m512i codes, float *out) const {
    __m512i low = _mm512_permutex2var_epi16(table[0], codes, table[1]);
    __m512i high = _mm512_permutex2var_epi16(table[2], codes, table[3]);
    __m512i value = _mm512_mask_mov_epi16(low, _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40)), high);
    __m512i sign = _mm512_slli_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(0x80)), 8);
    _mm512_storeu_si512(out, _mm512_or_si512(value, sign));
  }
  /// From 32 codes, the two of a lane side by side.
  void storePairs(__m256i codes, float *out) const { store(_mm512_cvtepu8_epi16(codes), out); }
  /// From 16 first and 16 second codes.
  void storeRows(__m128i first, __m128i second, float *out) const {
    store(_mm512_or_si512(_mm512_cvtepu8_epi32(first), _mm512_slli_epi32(_mm512_cvtepu8_epi32(second), 16)), out);
  }
};

inline __m128i load16(const void *p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }
inline __m256i load32(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }

/// The first n of 16 codes; zeros follow, whose value is 0.
inline __m128i load16(const void *p, int64_t n) {
  if (n >= 16)
    return load16(p);
  uint8_t codes[16] = {};
  if (n > 0)
    memcpy(codes, p, static_cast<size_t>(n));
  return load16(codes);
}

/// As in GemmPack.h. Stores are a whole vector wide, within the pitch of `lead` lanes.
template <typename T> void packRowsA(const void *from, int64_t row, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  Codes<T> codes;
  int64_t padded = (m + MR - 1) / MR * MR, lanes = (k + 1) / 2;
  for (int64_t i = 0; i < m; ++i, a += row) {
    float *to = out + i * lead;
    int64_t p = 0;
    for (; p + 32 <= k; p += 32)
      codes.storePairs(load32(a + p), to + p / 2);
    if (p < k) {
      uint8_t rest[32] = {};
      memcpy(rest, a + p, static_cast<size_t>(k - p));
      codes.storePairs(load32(rest), to + p / 2);
    }
  }
  for (int64_t i = m; i < padded; ++i)
    memset(out + i * lead, 0, static_cast<size_t>(lanes) * sizeof(float));
}

template <typename T> void packPanelsA(const void *from, int64_t col, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  Codes<T> codes;
  int64_t full = avail >= W ? (avail - W) / MR + 1 : 0, panels = (m + MR - 1) / MR;
  full = full < panels ? full : panels;
  for (int64_t p = 0; p < k; p += 2, out += MR) {
    const T *first = a + p * col, *second = first + col;
    bool both = p + 1 < k;
    for (int64_t q = 0; q < full; ++q)
      codes.storeRows(load16(first + q * MR), both ? load16(second + q * MR) : _mm_setzero_si128(),
                      out + q * panelStride);
    for (int64_t q = full; q < panels; ++q) {
      int64_t left = m - q * MR < MR ? m - q * MR : MR;
      codes.storeRows(load16(first + q * MR, left), both ? load16(second + q * MR, left) : _mm_setzero_si128(),
                      out + q * panelStride);
    }
  }
}

template <typename T> void packRowsB(const void *from, int64_t row, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  Codes<T> codes;
  int64_t panel = (k + 1) / 2 * NR;
  for (int64_t p = 0; p < k; p += 2, out += NR) {
    const T *first = b + p * row, *second = first + row;
    bool both = p + 1 < k;
    for (int64_t j = 0; j < (n + NR - 1) / NR * NR; j += W)
      codes.storeRows(load16(first + j, n - j), both ? load16(second + j, n - j) : _mm_setzero_si128(),
                      out + j / NR * panel + j % NR);
  }
}

/// Eight lanes of each of 16 columns, `col` apart, to eight rows of `NR` lanes.
template <typename T> void transposePairs(const T *in, int64_t col, const Codes<T> &codes, float *out) {
  __m256i r[8], t[8]; // columns i and i + 8 in the halves of r[i]
  for (int i = 0; i < 8; ++i)
    r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(in + i * col)), load16(in + (i + 8) * col), 1);
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    t[i + 4] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 8; i += 4) { // lanes i to i + 3
    __m256i low = _mm256_unpacklo_epi32(t[i], t[i + 1]), high = _mm256_unpacklo_epi32(t[i + 2], t[i + 3]);
    codes.storePairs(_mm256_unpacklo_epi64(low, high), out + i * NR);
    codes.storePairs(_mm256_unpackhi_epi64(low, high), out + (i + 1) * NR);
    low = _mm256_unpackhi_epi32(t[i], t[i + 1]), high = _mm256_unpackhi_epi32(t[i + 2], t[i + 3]);
    codes.storePairs(_mm256_unpacklo_epi64(low, high), out + (i + 2) * NR);
    codes.storePairs(_mm256_unpackhi_epi64(low, high), out + (i + 3) * NR);
  }
}

template <typename T> void packColumnsB(const void *from, int64_t col, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  Codes<T> codes;
  for (int64_t j0 = 0; j0 < n; j0 += NR) {
    int64_t cols = n - j0 < NR ? n - j0 : NR, p = 0;
    const T *in = b + j0 * col;
    if (cols == NR)
      for (; p + 16 <= k; p += 16, out += 8 * NR)
        for (int h = 0; h < NR; h += W)
          transposePairs(in + h * col + p, col, codes, out + h);
    for (; p < k; p += 2, out += NR) {
      uint8_t lanes[2 * NR] = {};
      for (int64_t j = 0; j < cols; ++j)
        memcpy(lanes + 2 * j, in + j * col + p, p + 1 < k ? 2 : 1);
      codes.storePairs(load32(lanes), out);
      codes.storePairs(load32(lanes + 32), out + W);
    }
  }
}

} // namespace
