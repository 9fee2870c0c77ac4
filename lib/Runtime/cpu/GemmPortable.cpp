// SPDX-License-Identifier: Apache-2.0
// The packed GEMM in plain C++: the fallback, and the reference that the others are tested against.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>

namespace {

using namespace mpt::rt;

constexpr int tileRows = 4;
constexpr int64_t depthMax = 256, rowsMax = 128;

struct Vec {
  static constexpr int width = 4;
  float v[4];
  static Vec zero() { return set(0); }
  static Vec set(float x) { return {{x, x, x, x}}; }
  static Vec broadcast(const float *p) { return set(*p); }
  static Vec load(const float *p) { return {{p[0], p[1], p[2], p[3]}}; }
  void store(float *p) const { memcpy(p, v, sizeof v); }
  template <typename F> static Vec map(F f) { return {{f(0), f(1), f(2), f(3)}}; }
  static Vec loadF16(const uint16_t *p) {
    return map([&](int i) { return fromF16(p[i]); });
  }
  static Vec loadBF16(const uint16_t *p) {
    return map([&](int i) { return fromBF16(p[i]); });
  }
  static Vec loadE4M3(const uint8_t *p) {
    return map([&](int i) { return fromE4M3FN(p[i]); });
  }
  static Vec loadE5M2(const uint8_t *p) {
    return map([&](int i) { return fromE5M2(p[i]); });
  }
  Vec asF16() const {
    return map([&](int i) { return fromF16(toF16(v[i])); });
  }
  Vec asBF16() const {
    return map([&](int i) { return fromBF16(toBF16(v[i])); });
  }
  void storeF16(uint16_t *p) const {
    for (int i = 0; i < 4; ++i)
      p[i] = toF16(v[i]);
  }
  void storeBF16(uint16_t *p) const {
    for (int i = 0; i < 4; ++i)
      p[i] = toBF16(v[i]);
  }
  static void storePairBF16(Vec a, Vec b, uint16_t *p) {
    a.storeBF16(p);
    b.storeBF16(p + width);
  }
  static Vec fma(Vec a, Vec b, Vec c) {
    return map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static Vec add(Vec a, Vec b) {
    return map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Vec mul(Vec a, Vec b) {
    return map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Vec relu(Vec a) {
    return map([&](int i) { return a.v[i] < 0 ? 0 : a.v[i]; });
  }
};

/// Transposes whole blocks of a panel; returns how many k it has done.
template <typename T> int64_t transposePanel(const T *, int64_t, int64_t, int, float *) { return 0; }

} // namespace

#include "cpu/GemmTypes.h"

#include "cpu/GemmPack.h"

#include "cpu/GemmTile.h"

#include "cpu/GemmTask.h"

#include "cpu/GemmWindows.h"

namespace mpt::rt {
const GemmKernels gemmPortable{"portable",       MR,         NR,          runGemm,
                               gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays,
                               runWindows,       runLines,   packColumns};
} // namespace mpt::rt
