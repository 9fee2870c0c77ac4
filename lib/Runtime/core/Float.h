// SPDX-License-Identifier: Apache-2.0
// Conversions between FP32 and the narrow floating-point types, exact or rounded to nearest even, without special
// instructions. Formats: IEEE 754 binary16, bfloat16, and OCP 8-bit floating point (OFP8) revision 1.0.
#ifndef MPT_RUNTIME_CORE_FLOAT_H
#define MPT_RUNTIME_CORE_FLOAT_H

#include <cstdint>
#include <cstring>

namespace mpt::rt {

inline uint32_t bitsOf(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}

inline float floatOf(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

inline float fromBF16(uint16_t h) { return floatOf(static_cast<uint32_t>(h) << 16); }

inline uint16_t toBF16(float x) {
  uint32_t u = bitsOf(x);
  if ((u & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/// Widens a format of `E` exponent and `M` mantissa bits with IEEE infinities and NaNs.
template <int E, int M> float fromIeee(uint32_t h) {
  constexpr uint32_t expMask = (1u << E) - 1;
  constexpr int bias = (1 << (E - 1)) - 1;
  uint32_t sign = (h >> (E + M) & 1) << 31, exp = h >> M & expMask, man = h & ((1u << M) - 1);
  if (exp == expMask)
    return floatOf(sign | 0x7f800000u | man << (23 - M));
  if (exp == 0) {
    float magnitude = static_cast<float>(man) * floatOf(static_cast<uint32_t>(127 + 1 - bias - M) << 23);
    return floatOf(sign | bitsOf(magnitude));
  }
  return floatOf(sign | (exp + 127 - bias) << 23 | man << (23 - M));
}

/// Rounds to nearest even; overflow gives infinity.
template <int E, int M> uint32_t toIeee(float x) {
  constexpr uint32_t expMask = (1u << E) - 1;
  constexpr int bias = (1 << (E - 1)) - 1;
  uint32_t u = bitsOf(x), sign = (u >> 31) << (E + M), mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u)
    return sign | expMask << M | 1u << (M - 1) | (mag & 0x7fffffu) >> (23 - M);
  int exp = static_cast<int>(mag >> 23) - 127 + bias;
  if (exp <= 0) {
    // Adding a power of two whose unit in the last place is the subnormal spacing makes the hardware round.
    float magic = floatOf(static_cast<uint32_t>(127 + 1 - bias - M + 23) << 23);
    return sign | (bitsOf(floatOf(mag) + magic) - bitsOf(magic));
  }
  uint32_t rounded = mag + ((1u << (22 - M)) - 1) + (mag >> (23 - M) & 1);
  rounded = (rounded >> (23 - M)) - (static_cast<uint32_t>(127 - bias) << M);
  return sign | (rounded > expMask << M ? expMask << M : rounded);
}

inline float fromF16(uint16_t h) { return fromIeee<5, 10>(h); }
inline uint16_t toF16(float x) { return static_cast<uint16_t>(toIeee<5, 10>(x)); }
inline float fromE5M2(uint8_t h) { return fromIeee<5, 2>(h); }
inline uint8_t toE5M2(float x) { return static_cast<uint8_t>(toIeee<5, 2>(x)); }

/// E4M3FN has no infinity and one NaN code a sign (S.1111.111).
inline float fromE4M3FN(uint8_t h) {
  if ((h & 0x7f) == 0x7f)
    return floatOf(0x7fc00000u | static_cast<uint32_t>(h & 0x80) << 24);
  uint32_t sign = static_cast<uint32_t>(h & 0x80) << 24, exp = h >> 3 & 15, man = h & 7;
  if (exp == 0)
    return floatOf(sign | bitsOf(static_cast<float>(man) * 0x1p-9f));
  return floatOf(sign | (exp + 120) << 23 | man << 20);
}

/// Values beyond the largest finite one (448) become NaN, as ONNX's Cast with saturate=0 says.
inline uint8_t toE4M3FN(float x) {
  uint32_t u = bitsOf(x), mag = u & 0x7fffffffu;
  uint8_t sign = static_cast<uint8_t>(u >> 24 & 0x80);
  if (mag > 0x43e80000u) // 464 is halfway to the code after 448, and ties to 448
    return sign | 0x7f;
  if (mag < 0x3c800000u) { // below 2^-6
    float magic = floatOf(static_cast<uint32_t>(127 - 9 + 23) << 23);
    return static_cast<uint8_t>(sign | (bitsOf(floatOf(mag) + magic) - bitsOf(magic)));
  }
  uint32_t rounded = mag + 0x7ffffu + (mag >> 20 & 1);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

} // namespace mpt::rt

#endif
