// SPDX-License-Identifier: Apache-2.0
// In place of the compiler's header: AVX-512 intrinsics computed by SIMDe with AVX2, so that the AVX-512 kernels run,
// and are tested, on processors without it. Conversions that SIMDe lacks are written out here.
#ifndef MPT_TEST_CAPI_SIMULATED_IMMINTRIN_H
#define MPT_TEST_CAPI_SIMULATED_IMMINTRIN_H

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cstring>

namespace mpt::test {

template <typename To, typename From> To bitsAs(const From &from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

struct Halves {
  __m256 half[2];
};

inline simde__m512 widenHalf(__m256i v) {
  Halves wide{{_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))}};
  return bitsAs<simde__m512>(wide);
}

template <int Rounding> __m256i narrowToHalf(simde__m512 v) {
  auto wide = bitsAs<Halves>(v);
  return _mm256_set_m128i(_mm256_cvtps_ph(wide.half[1], Rounding), _mm256_cvtps_ph(wide.half[0], Rounding));
}

template <typename Out, typename To, typename From, typename In> Out eachLane(In v) {
  constexpr int lanes = sizeof(In) / sizeof(From);
  struct Source {
    From lane[lanes];
  } from = bitsAs<Source>(v);
  struct Result {
    To lane[lanes];
  } to;
  for (int i = 0; i < lanes; ++i)
    to.lane[i] = static_cast<To>(from.lane[i]);
  return bitsAs<Out>(to);
}

} // namespace mpt::test

#undef _mm512_cvtps_ph
#define _mm512_cvtph_ps(v) mpt::test::widenHalf(v)
#define _mm512_cvtps_ph(v, rounding) mpt::test::narrowToHalf<rounding>(v)
#define _mm512_cvtepu8_epi16(v) mpt::test::eachLane<simde__m512i, uint16_t, uint8_t>(v)
#define _mm512_cvtepu8_epi32(v) mpt::test::eachLane<simde__m512i, uint32_t, uint8_t>(v)
#define _mm512_cvtepu16_epi32(v) mpt::test::eachLane<simde__m512i, uint32_t, uint16_t>(v)
#define _mm512_cvtepi32_epi16(v) mpt::test::eachLane<__m256i, uint16_t, uint32_t>(v)

#endif // MPT_TEST_CAPI_SIMULATED_IMMINTRIN_H
