// SPDX-License-Identifier: Apache-2.0
// Transposing a panel of B from contiguous columns in 8 x 8 blocks (AVX2); shared by the x86 kernels.

namespace {

inline __m256 load8(const float *p) { return _mm256_loadu_ps(p); }

inline __m256 load8F16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i *>(p))); }

inline __m256 load8BF16(const void *p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i *>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

inline __m256 round8F16(__m256 v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }

/// Rounded to bf16, in the low halves. In integers: the processor's own conversion flushes subnormal values.
inline __m256i round8BF16(__m256 v) {
  __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
  __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}

/// 1-5-2 is the upper half of an f16.
inline __m256 load8E5M2(const void *p) {
  __m128i half = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i *>(p))), 8);
  return _mm256_cvtph_ps(half);
}

/// 1-4-3 in an f16's place, its sign apart, is 2^-8 of its value, subnormal numbers included; 0x7f is NaN.
inline __m256 load8E4M3(const void *p) {
  __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i *>(p)));
  __m128i magnitude = _mm_and_si128(x, _mm_set1_epi16(0x7f));
  __m128i sign = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8);
  __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
  __m128i half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16(magnitude, 7), sign), nan);
  return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
}

/// `columns` (a multiple of 8) runs of k values, `pitch` apart, to k rows of `columns` values; returns the rows done.
template <typename T, typename Load>
int64_t transposeColumns(const T *in, int64_t pitch, int64_t k, int columns, float *out, Load load) {
  int64_t p = 0;
  for (; p + 8 <= k; p += 8)
    for (int j = 0; j < columns; j += 8) {
      __m256 r[8], t[8];
      for (int i = 0; i < 8; ++i)
        r[i] = load(in + (j + i) * pitch + p);
      for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
      }
      for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
      }
      for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(out + (p + i) * columns + j, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (p + i + 4) * columns + j, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
      }
    }
  return p;
}

struct F16;
struct BF16;
struct E4M3;
struct E5M2;
template <typename T> struct Rounded;

/// Transposes whole blocks of a panel of NR columns; returns how many k it has done.
inline int64_t transposePanel(const float *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(in, pitch, k, columns, out, load8);
}
inline int64_t transposePanel(const F16 *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(reinterpret_cast<const uint16_t *>(in), pitch, k, columns, out, load8F16);
}
inline int64_t transposePanel(const BF16 *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(reinterpret_cast<const uint16_t *>(in), pitch, k, columns, out, load8BF16);
}
inline int64_t transposePanel(const E4M3 *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(reinterpret_cast<const uint8_t *>(in), pitch, k, columns, out, load8E4M3);
}
inline int64_t transposePanel(const E5M2 *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(reinterpret_cast<const uint8_t *>(in), pitch, k, columns, out, load8E5M2);
}
inline int64_t transposePanel(const Rounded<F16> *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(reinterpret_cast<const float *>(in), pitch, k, columns, out,
                          [](const float *p) { return round8F16(load8(p)); });
}
inline int64_t transposePanel(const Rounded<BF16> *in, int64_t pitch, int64_t k, int columns, float *out) {
  return transposeColumns(reinterpret_cast<const float *>(in), pitch, k, columns, out, [](const float *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(round8BF16(load8(p)), 16));
  });
}
template <typename T> int64_t transposePanel(const T *, int64_t, int64_t, int, float *) { return 0; }

} // namespace
