// SPDX-License-Identifier: Apache-2.0
// The result that a reduction has to give, in the plainest form; and values that are hard on it.
#ifndef MPT_TEST_WORLD_TREESUM_H
#define MPT_TEST_WORLD_TREESUM_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace mpt::test {

using Values = std::vector<std::vector<float>>; // of each replica

/// One element over replicas [begin, end), split at the largest power of two below their number.
inline float treeSum(const Values &values, size_t element, size_t begin, size_t end, bool maximum) {
  if (end - begin == 1)
    return values[begin][element];
  size_t half = 1;
  while (half * 2 < end - begin)
    half *= 2;
  float left = treeSum(values, element, begin, begin + half, maximum);
  float right = treeSum(values, element, begin + half, end, maximum);
  if (std::isnan(left) || std::isnan(right))
    return std::numeric_limits<float>::quiet_NaN();
  float result = maximum ? (left > right ? left : right) : left + right;
  return std::isnan(result) ? std::numeric_limits<float>::quiet_NaN() : result;
}

inline std::vector<float> treeSum(const Values &values, bool maximum) {
  std::vector<float> result(values[0].size());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = treeSum(values, i, 0, values.size(), maximum);
  return result;
}

/// Values whose sum depends on the order, with infinities, NaN of other bits, subnormal numbers and signed zeros. The
/// same for the same seed.
inline Values hardValues(size_t replicas, size_t elements, unsigned seed) {
  std::mt19937 random(seed);
  Values values(replicas, std::vector<float>(elements));
  for (auto &replica : values)
    for (float &value : replica) {
      value = std::ldexp(static_cast<float>(random()) / 4294967296.0f - 0.5f, static_cast<int>(random() % 24) - 12);
      switch (random() % 64) {
      case 0:
        value = std::numeric_limits<float>::infinity();
        break;
      case 1:
        value = -std::numeric_limits<float>::infinity();
        break;
      case 2: {
        uint32_t bits = 0xffc12345;
        memcpy(&value, &bits, sizeof value);
        break;
      }
      case 3:
        value = 1e-40f;
        break;
      case 4:
        value = -0.0f;
        break;
      case 5:
        value = 3e38f;
        break;
      }
    }
  return values;
}

inline bool sameBits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

} // namespace mpt::test

#endif
