// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: vectors of 16 FP32 values (AVX-512).

namespace {

using namespace mpt::rt;

struct Vec {
  static constexpr int width = 16;
  __m512 v;
  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec set(float x) { return {_mm512_set1_ps(x)}; }
  static Vec broadcast(const float *p) { return {_mm512_set1_ps(*p)}; }
  static Vec load(const float *p) { return {_mm512_loadu_ps(p)}; }
  static Vec loadF16(const uint16_t *p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))};
  }
  static Vec loadBF16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static Vec loadE5M2(const uint8_t *p) {
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    return {_mm512_cvtph_ps(_mm256_slli_epi16(x, 8))};
  }
  static Vec loadE4M3(const uint8_t *p) { // see load8E4M3
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi16(0x7f));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7e00));
    __m256i half = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign), nan);
    return {_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256))};
  }
  Vec asF16() const { return {_mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))}; }
  Vec asBF16() const { return {_mm512_castsi512_ps(_mm512_slli_epi32(roundBF16(), 16))}; }
  void store(float *p) const { _mm512_storeu_ps(p, v); }
  void storeF16(uint16_t *p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  // In the low halves. In integers: the processor's own conversion flushes subnormal values.
  __m512i roundBF16() const {
    __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_srli_epi32(rounded, 16);
  }
  void storeBF16(uint16_t *p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtepi32_epi16(roundBF16()));
  }
  static void storePairBF16(Vec a, Vec b, uint16_t *p) {
#if defined(__AVX512BF16__) // whose products have no subnormal values anyway
    _mm512_storeu_si512(p, __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(b.v, a.v)));
#else
    a.storeBF16(p);
    b.storeBF16(p + width);
#endif
  }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  static Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static Vec relu(Vec a) { return {_mm512_max_ps(_mm512_setzero_ps(), a.v)}; } // NaN stays
};

} // namespace
