// SPDX-License-Identifier: Apache-2.0
// Rounding of FP32 arrays to 16-bit floats at memory speed.
#ifndef MPT_SUPPORT_NARROWFLOAT_H
#define MPT_SUPPORT_NARROWFLOAT_H

#include <cstddef>
#include <cstdint>

namespace mpt {

/// Rounds `count` numbers to nearest even, as bits of IEEE binary16 or bfloat16. Infinities and NaN stay; a finite
/// value beyond the range becomes the largest finite one of its sign, and a non-zero value below it the smallest
/// subnormal.
void narrowToFloat16(const float *from, uint16_t *to, size_t count);
void narrowToBFloat16(const float *from, uint16_t *to, size_t count);

} // namespace mpt

#endif // MPT_SUPPORT_NARROWFLOAT_H
