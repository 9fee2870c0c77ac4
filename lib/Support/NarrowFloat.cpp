// SPDX-License-Identifier: Apache-2.0
// FP32 to 16-bit floats by integer arithmetic without branches, which vectorises on every processor.
#include "mpt/Support/NarrowFloat.h"

#include <cstring>

static uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
static float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void mpt::narrowToFloat16(const float *from, uint16_t *to, size_t count) {
  constexpr uint32_t infinity = 0x7f800000, firstNormal = 0x38800000, half = 0x3f000000;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = bitsOf(from[i]), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    // Exponent rebias by -112, then half a unit of the last kept bit, ties to even.
    uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Adding 0.5 shifts a subnormal's bits to the bottom, and the addition rounds.
    uint32_t subnormal = bitsOf(floatOf(magnitude < firstNormal ? magnitude : 0) + 0.5f) - half;
    subnormal = subnormal == 0 && magnitude != 0 ? 1 : subnormal;
    uint32_t finite = magnitude < firstNormal ? subnormal : normal > 0x7bff ? 0x7bff : normal;
    uint32_t special = magnitude > infinity ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : 0x7c00;
    to[i] = static_cast<uint16_t>(sign | (magnitude >= infinity ? special : finite));
  }
}

void mpt::narrowToBFloat16(const float *from, uint16_t *to, size_t count) {
  constexpr uint32_t infinity = 0x7f800000;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = bitsOf(from[i]), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t rounded = (magnitude + 0x7fff + ((magnitude >> 16) & 1)) >> 16;
    rounded = rounded == 0 && magnitude != 0 ? 1 : rounded > 0x7f7f ? 0x7f7f : rounded;
    uint32_t special = magnitude > infinity ? 0x7fc0 | ((magnitude >> 16) & 0x3f) : 0x7f80;
    to[i] = static_cast<uint16_t>(sign | (magnitude >= infinity ? special : rounded));
  }
}
