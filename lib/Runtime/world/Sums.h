// SPDX-License-Identifier: Apache-2.0
// Element by element, the operations of reductions, with one result for the same operands wherever they run.
#ifndef MPT_RUNTIME_WORLD_SUMS_H
#define MPT_RUNTIME_WORLD_SUMS_H

#include <cfenv>
#include <cstdint>

namespace mpt::rt {

/// Rounding to nearest even and gradual underflow, whatever the caller's thread has switched to.
class DefaultRounding {
  fenv_t before;

public:
  DefaultRounding() {
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
  }
  DefaultRounding(const DefaultRounding &) = delete;
  ~DefaultRounding() { fesetenv(&before); }
};

/// out[i] = a[i] + b[i] in FP32. NaN is one NaN: which operand's bits survive an addition depends on the instruction.
/// `out` is `a`, `b`, or apart from both.
void addTo(float *out, const float *a, const float *b, int64_t count);

/// out[i] = the larger one; NaN where one of them is.
void maximumTo(float *out, const float *a, const float *b, int64_t count);

} // namespace mpt::rt

#endif
