// SPDX-License-Identifier: Apache-2.0
// Loops over values of reductions; the compiler makes vectors of them.
#include "world/Sums.h"

#include <limits>

using namespace mpt::rt;

static constexpr float noNumber = std::numeric_limits<float>::quiet_NaN();

void mpt::rt::addTo(float *out, const float *a, const float *b, int64_t count) {
  // The same index alone is read and written where `out` is an operand.
#pragma clang loop vectorize(assume_safety)
  for (int64_t i = 0; i < count; ++i) {
    float sum = a[i] + b[i];
    out[i] = sum != sum ? noNumber : sum;
  }
}

void mpt::rt::maximumTo(float *out, const float *a, const float *b, int64_t count) {
#pragma clang loop vectorize(assume_safety)
  for (int64_t i = 0; i < count; ++i) {
    float left = a[i], right = b[i];
    float larger = left > right ? left : right;
    out[i] = left != left || right != right ? noNumber : larger;
  }
}
