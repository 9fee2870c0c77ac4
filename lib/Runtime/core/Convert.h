// SPDX-License-Identifier: Apache-2.0
// Arrays of any element type to and from FP32.
#ifndef MPT_RUNTIME_CORE_CONVERT_H
#define MPT_RUNTIME_CORE_CONVERT_H

#include "mpt-c/types.h"

namespace mpt::rt {

/// Nearest FP32 values.
void toFloat(int64_t dtype, const void *in, int64_t count, float *out);

/// Floating-point types are rounded to nearest even, integers truncated; bool is whether the value is not zero.
void fromFloat(int64_t dtype, const float *in, int64_t count, void *out);

bool isFloating(int64_t dtype);

} // namespace mpt::rt

#endif
