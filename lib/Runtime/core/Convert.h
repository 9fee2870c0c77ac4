// SPDX-License-Identifier: Apache-2.0
// Arrays of any element type to and from FP32.
#ifndef MPT_RUNTIME_CORE_CONVERT_H
#define MPT_RUNTIME_CORE_CONVERT_H

#include "mpt-c/types.h"

#include <cstring>

namespace mpt::rt {

/// Element `i` of a caller's array, which need not be aligned.
template <typename T> T elementAt(const void *array, int64_t i) {
  T element;
  memcpy(&element, static_cast<const uint8_t *>(array) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return element;
}

/// Nearest FP32 values.
void toFloat(int64_t dtype, const void *in, int64_t count, float *out);

/// Floating-point types are rounded to nearest even, integers truncated; bool is whether the value is not zero.
void fromFloat(int64_t dtype, const float *in, int64_t count, void *out);

bool isFloating(int64_t dtype);

} // namespace mpt::rt

#endif
