// SPDX-License-Identifier: Apache-2.0
// The packed GEMM for AArch64: 6 x 16 tiles, 24 of the 32 NEON registers are accumulators. A vector is two registers,
// in the compiler's own vector types.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>

namespace {

using namespace mpt::rt;

constexpr int tileRows = 6;
constexpr int64_t depthMax = 320, rowsMax = 144;

struct Vec {
  static constexpr int width = 8;
  using Floats __attribute__((vector_size(32))) = float;
  using Words __attribute__((vector_size(32))) = uint32_t;
  using Halves __attribute__((vector_size(16))) = _Float16;
  using Shorts __attribute__((vector_size(16))) = uint16_t;
  using Bytes __attribute__((vector_size(8))) = uint8_t;
  Floats v;

  template <typename V> static V get(const void *p) {
    V out;
    memcpy(&out, p, sizeof out);
    return out;
  }
  template <typename V> static Floats widened(V narrow) { return __builtin_convertvector(narrow, Floats); }
  static Vec zero() { return {Floats{}}; }
  static Vec set(float x) { return {Floats{x, x, x, x, x, x, x, x}}; }
  static Vec broadcast(const float *p) { return set(*p); }
  static Vec load(const float *p) { return {get<Floats>(p)}; }
  static Vec loadF16(const uint16_t *p) { return {widened(get<Halves>(p))}; }
  static Vec loadBF16(const uint16_t *p) {
    return {__builtin_bit_cast(Floats, __builtin_convertvector(get<Shorts>(p), Words) << 16)};
  }
  static Vec loadE5M2(const uint8_t *p) {
    return {widened(__builtin_bit_cast(Halves, __builtin_convertvector(get<Bytes>(p), Shorts) << 8))};
  }
  static Vec loadE4M3(const uint8_t *p) { // as FP16 of an exponent that is less by 8
    Shorts x = __builtin_convertvector(get<Bytes>(p), Shorts), magnitude = x & 0x7f;
    Shorts nan = __builtin_bit_cast(Shorts, magnitude == 0x7f) & 0x7e00;
    Shorts half = magnitude << 7 | (x & 0x80) << 8 | nan;
    return {widened(__builtin_bit_cast(Halves, half)) * 256};
  }
  Halves halves() const { return __builtin_convertvector(v, Halves); }
  Words bf16Bits() const { // in the low halves
    Words u = __builtin_bit_cast(Words, v), rounded = u + (u >> 16 & 1) + 0x7fff;
    Words nan = __builtin_bit_cast(Words, v != v);
    return ((rounded & ~nan) | ((u | 0x400000) & nan)) >> 16;
  }
  Vec asF16() const { return {widened(halves())}; }
  Vec asBF16() const { return {__builtin_bit_cast(Floats, bf16Bits() << 16)}; }
  void store(float *p) const { memcpy(p, &v, sizeof v); }
  void storeF16(uint16_t *p) const {
    Halves h = halves();
    memcpy(p, &h, sizeof h);
  }
  void storeBF16(uint16_t *p) const {
    Shorts s = __builtin_convertvector(bf16Bits(), Shorts);
    memcpy(p, &s, sizeof s);
  }
  static void storePairBF16(Vec a, Vec b, uint16_t *p) {
    a.storeBF16(p);
    b.storeBF16(p + width);
  }
  static Vec fma(Vec a, Vec b, Vec c) { return {__builtin_elementwise_fma(a.v, b.v, c.v)}; }
  static Vec add(Vec a, Vec b) { return {a.v + b.v}; }
  static Vec mul(Vec a, Vec b) { return {a.v * b.v}; }
  static Vec relu(Vec a) { // NaN stays
    Words negative = __builtin_bit_cast(Words, a.v < 0);
    return {__builtin_bit_cast(Floats, __builtin_bit_cast(Words, a.v) & ~negative)};
  }
};

} // namespace

#include "cpu/GemmTypes.h"

namespace {

/// Transposes whole blocks of a panel of NR columns; returns how many k it has done.
template <typename T> int64_t transposePanel(const T *in, int64_t pitch, int64_t k, int columns, float *out) {
  int64_t p = 0;
  for (; p + W <= k; p += W)
    for (int j = 0; j < columns; j += W) {
      Vec column[W];
      for (int i = 0; i < W; ++i)
        column[i] = loadAs(in + (j + i) * pitch + p);
      for (int row = 0; row < W; ++row)
        for (int i = 0; i < W; ++i)
          out[(p + row) * columns + j + i] = column[i].v[row];
    }
  return p;
}

} // namespace

#include "cpu/GemmPack.h"

#include "cpu/GemmTile.h"

#include "cpu/GemmTask.h"

#include "cpu/GemmWindows.h"

namespace mpt::rt {
const GemmKernels gemmNeon{"neon",           MR,         NR,          runGemm,
                           gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays,
                           runWindows,       runLines,   packColumns};
} // namespace mpt::rt
