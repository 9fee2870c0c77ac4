// SPDX-License-Identifier: Apache-2.0
// Conversions between FP32 and the narrow types, over every code and at the edges of rounding.
#include "core/Float.h"
#include "Check.h"

using namespace mpt::rt;

int main() {
  for (uint32_t i = 0; i < 65536; ++i) {
    auto h = static_cast<uint16_t>(i);
    float x = fromF16(h), y = fromBF16(h);
    EXPECT(x != x ? (toF16(x) & 0x7e00) == 0x7e00 : toF16(x) == h);
    EXPECT(y != y ? (toBF16(y) & 0x7fc0) == 0x7fc0 : toBF16(y) == h);
  }
  for (uint32_t i = 0; i < 256; ++i) {
    auto h = static_cast<uint8_t>(i);
    float x = fromE4M3FN(h), y = fromE5M2(h);
    EXPECT(x != x ? (toE4M3FN(x) & 0x7f) == 0x7f : toE4M3FN(x) == h);
    EXPECT(y != y ? (toE5M2(y) & 0x7e) == 0x7e : toE5M2(y) == h);
  }
  EXPECT(fromF16(0x3c00) == 1 && fromF16(1) == 0x1p-24f && fromF16(0xfbff) == -65504);
  EXPECT(toF16(65519.99f) == 0x7bff && toF16(65520) == 0x7c00 && toF16(0x1p-25f) == 0 && toF16(0x1.8p-25f) == 1);
  EXPECT(toF16(1 + 0x1p-11f) == 0x3c00 && toF16(1 + 0x3p-11f) == 0x3c02);
  EXPECT(toBF16(1 + 0x1p-8f) == 0x3f80 && toBF16(1 + 0x3p-8f) == 0x3f82);
  EXPECT(fromE4M3FN(0x7e) == 448 && fromE4M3FN(1) == 0x1p-9f && fromE5M2(0x7b) == 57344);
  EXPECT(toE4M3FN(464) == 0x7e && toE4M3FN(464.1f) == 0x7f && toE4M3FN(0x1p-10f) == 0 && toE4M3FN(-3) == 0xc4);
  return mpt::test::finish("float");
}
