// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: packing to BF16, of operands that are BF16, are read rounded to it, or have 8 bits, whose values
// BF16 has. A lane of 32 bits holds two values that are neighbours along k, the first in the lower half. Zeros extend k
// to a multiple of `depthUnit` lanes, which the including file defines. A is packed row by row, whatever its layout:
// lanes p to p + 15 of row i begin at placeOf(i, p, lanes of a row).

namespace {

constexpr int64_t perLane = 2; // values of k in a lane of packed operands
template <typename T> constexpr bool isPacked = sizeof(T) == 1;
template <> constexpr bool isPacked<BF16> = true;
template <> constexpr bool isPacked<Rounded<BF16>> = true;

constexpr bool inPanels = false;
inline int64_t lanesOf(int64_t k) { return (k + 2 * depthUnit - 1) / (2 * depthUnit) * depthUnit; }

/// c + a * b, both products of each lane. The instruction takes subnormal numbers for zero, and makes zero of them.
/// With 8-bit operands there are none: they are multiples of 2^-16, so that products and their sums are multiples of
/// 2^-32.
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

/// Lanes whose halves are the lower halves of `first` and of `second`; their upper halves are zero.
inline __m512i interleave(__m512i first, __m512i second) {
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/// Reads numbers as lanes: 32 neighbours along k, or 16 numbers and 16 more, whose place along k is one behind. Codes
/// of 8 bits are widened by a table in four registers.
template <typename T> class Reader {
  __m512i table[4];

  /// 16 lanes, whose codes are in the lower bytes of each half.
  __m512i widened(__m512i codes) const {
    __m512i low = _mm512_permutex2var_epi16(table[0], codes, table[1]);
    __m512i high = _mm512_permutex2var_epi16(table[2], codes, table[3]);
    __m512i value = _mm512_mask_mov_epi16(low, _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40)), high);
    __m512i sign = _mm512_slli_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(0x80)), 8);
    return _mm512_or_si512(value, sign);
  }

public:
  Reader() {
    for (int i = 0; i < 4; ++i)
      table[i] = _mm512_loadu_si512(magnitudes<T>() + 32 * i);
  }
  __m512i pairs(const T *p) const {
    return widened(_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))));
  }
  __m512i rows(const T *first, const T *second) const {
    auto load = [](const T *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))); };
    return widened(interleave(load(first), load(second)));
  }
};

template <> struct Reader<BF16> {
  static __m512i pairs(const BF16 *p) { return _mm512_loadu_si512(p); }
  static __m512i rows(const BF16 *first, const BF16 *second) {
    auto load = [](const BF16 *p) {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    };
    return interleave(load(first), load(second));
  }
};

template <> struct Reader<Rounded<BF16>> {
  static __m512i round(const Rounded<BF16> *p) { return Vec::load(&p->value).roundBF16(); }
  static __m512i pairs(const Rounded<BF16> *p) {
    __m512i low = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(round(p)));
    return _mm512_inserti64x4(low, _mm512_cvtepi32_epi16(round(p + W)), 1);
  }
  static __m512i rows(const Rounded<BF16> *first, const Rounded<BF16> *second) {
    return interleave(round(first), round(second));
  }
};

/// `n` of C numbers at p, and zeros: p itself where there are C, else `room`.
template <int C, typename T> const T *part(const T *p, int64_t n, T (&room)[C]) {
  if (n >= C)
    return p;
  memset(room, 0, sizeof room);
  if (n > 0)
    memcpy(room, p, static_cast<size_t>(n) * sizeof(T));
  return room;
}

/// 16 lanes of two rows of a matrix of which `rows` rows and `cols` columns are left; zeros beyond them.
template <typename T> __m512i twoRows(const Reader<T> &reader, const T *p, int64_t pitch, int64_t rows, int64_t cols) {
  if (rows >= 2 && cols >= W)
    return reader.rows(p, p + pitch);
  T room[2][W];
  return reader.rows(part(p, rows > 0 ? cols : 0, room[0]), part(p + pitch, rows > 1 ? cols : 0, room[1]));
}

inline void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) { // 4 x 4 blocks are transposed then, one in each quarter
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    __m512i c = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88), d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

/// As in GemmPack.h. Stores are a whole vector wide, within the pitch of rows.
template <typename T> void packRowsA(const void *from, int64_t row, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  const Reader<T> reader;
  const int64_t padded = (m + MR - 1) / MR * MR, lanes = lanesOf(k);
  for (int64_t i = 0; i < m; ++i, a += row) {
    T room[2 * W];
    for (int64_t p = 0; p < k; p += 2 * W)
      _mm512_storeu_si512(out + placeOf(i, p / 2, lanes), reader.pairs(part(a + p, k - p, room)));
  }
  for (int64_t i = m; i < padded; ++i)
    for (int64_t p = 0; p < lanes; p += W)
      _mm512_storeu_si512(out + placeOf(i, p, lanes), _mm512_setzero_si512());
}

/// A multiple of 32 columns.
template <typename T> void packRun(const T *from, int64_t n, int64_t i, int64_t p, int64_t lanes, float *out) {
  for (int64_t q = 0; q < n; q += 2 * W)
    _mm512_storeu_si512(out + placeOf(i, (p + q) / 2, lanes),
                        from ? Reader<T>::pairs(from + q) : _mm512_setzero_si512());
}

/// Columns of A contiguous: the same rows, transposed in blocks. Rows behind the m-th may hold any of the matrix.
template <typename T> void packPanelsA(const void *from, int64_t col, int64_t m, int64_t avail, int64_t k, float *out) {
  auto *a = static_cast<const T *>(from);
  const Reader<T> reader;
  const int64_t padded = (m + MR - 1) / MR * MR, lanes = lanesOf(k);
  for (int64_t p = 0; p < k; p += 2 * W)
    for (int64_t i = 0; i < padded; i += W) {
      __m512i r[W];
      for (int64_t q = 0; q < W; ++q)
        r[q] = twoRows(reader, a + (p + 2 * q) * col + i, col, k - p - 2 * q, avail - i);
      transpose16(r);
      for (int64_t q = 0; q < W && i + q < padded; ++q)
        _mm512_storeu_si512(out + placeOf(i + q, p / 2, lanes), r[q]);
    }
}

template <typename T> void packRowsB(const void *from, int64_t row, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  const Reader<T> reader;
  const int64_t lanes = lanesOf(k);
  for (int64_t p = 0; p < lanes; ++p, out += NR)
    for (int64_t j = 0; j < (n + NR - 1) / NR * NR; j += W)
      _mm512_storeu_si512(out + j / NR * lanes * NR + j % NR,
                          twoRows(reader, b + 2 * p * row + j, row, k - 2 * p, n - j));
}

template <typename T> void packColumnsB(const void *from, int64_t col, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  const Reader<T> reader;
  const int64_t lanes = lanesOf(k);
  for (int64_t j = 0; j < (n + NR - 1) / NR * NR; j += W) {
    float *to = out + j / NR * lanes * NR + j % NR;
    for (int64_t p = 0; p < lanes; p += W) {
      __m512i r[W];
      T room[2 * W];
      for (int64_t q = 0; q < W; ++q)
        r[q] = reader.pairs(part(b + (j + q) * col + 2 * p, j + q < n ? k - 2 * p : 0, room));
      transpose16(r);
      for (int64_t q = 0; q < W && p + q < lanes; ++q)
        _mm512_storeu_si512(to + (p + q) * NR, r[q]);
    }
  }
}

} // namespace
