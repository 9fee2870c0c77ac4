// SPDX-License-Identifier: Apache-2.0
// The packed GEMM for AVX2, FMA and F16C: 6 x 16 tiles, 12 of the 16 registers are accumulators.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>
#include <immintrin.h>

#include "cpu/Transpose8.h"

namespace {

using namespace mpt::rt;

constexpr int tileRows = 6;
constexpr int64_t depthMax = 320, rowsMax = 144;

struct Vec {
  static constexpr int width = 8;
  __m256 v;
  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec set(float x) { return {_mm256_set1_ps(x)}; }
  static Vec broadcast(const float *p) { return {_mm256_broadcast_ss(p)}; }
  static Vec load(const float *p) { return {_mm256_loadu_ps(p)}; }
  static Vec loadF16(const uint16_t *p) { return {load8F16(p)}; }
  static Vec loadBF16(const uint16_t *p) { return {load8BF16(p)}; }
  static Vec loadE4M3(const uint8_t *p) { return {load8E4M3(p)}; }
  static Vec loadE5M2(const uint8_t *p) { return {load8E5M2(p)}; }
  Vec asF16() const { return {round8F16(v)}; }
  Vec asBF16() const { return {_mm256_castsi256_ps(_mm256_slli_epi32(round8BF16(v), 16))}; }
  void store(float *p) const { _mm256_storeu_ps(p, v); }
  void storeF16(uint16_t *p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  void storeBF16(uint16_t *p) const {
    __m256i r = round8BF16(v);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_castsi256_si128(r));
  }
  static void storePairBF16(Vec a, Vec b, uint16_t *p) {
    __m256i r = _mm256_permute4x64_epi64(_mm256_packus_epi32(round8BF16(a.v), round8BF16(b.v)), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), r);
  }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  static Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  static Vec relu(Vec a) { return {_mm256_max_ps(_mm256_setzero_ps(), a.v)}; } // NaN stays
};

} // namespace

#include "cpu/GemmTypes.h"

#include "cpu/GemmPack.h"

#include "cpu/GemmTile.h"

#include "cpu/GemmTask.h"

#include "cpu/GemmWindows.h"

namespace mpt::rt {
const GemmKernels gemmAvx2{"avx2",           MR,         NR,          runGemm,
                           gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays,
                           runWindows,       runLines,   packColumns};
} // namespace mpt::rt
