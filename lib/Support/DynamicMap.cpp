// SPDX-License-Identifier: Apache-2.0
// The dynamic 8-bit map of optimizer states.
#include "mpt/Support/DynamicMap.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mpt;

std::array<float, 256> mpt::dynamicMap(bool isSigned) {
  std::array<float, 256> map{};
  size_t size = 0;
  map[size++] = 0.0f;
  map[size++] = 1.0f;
  for (int decade = 0; decade < 7; ++decade) {
    int parts = (isSigned ? 1 : 2) << decade;
    for (int part = 0; part < parts; ++part) {
      double middle = (0.1 + 0.9 * (part + 0.5) / parts) * std::pow(10.0, decade - 6);
      map[size++] = static_cast<float>(middle);
      if (isSigned)
        map[size++] = static_cast<float>(-middle);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

std::array<float, 255> mpt::dynamicBoundaries(bool isSigned) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::array<float, 256> map = dynamicMap(isSigned);
  std::array<float, 255> boundaries{};
  for (size_t i = 0; i < boundaries.size(); ++i) {
    // As others decide in FP32: up where the distance from the lower value is half the gap or more. Near the middle,
    // where that turns.
    const float low = map[i], half = (map[i + 1] - low) * 0.5f;
    auto isUp = [&](float x) { return x - low >= half; };
    float x = low + half;
    while (isUp(x))
      x = std::nextafter(x, -infinity);
    while (!isUp(x))
      x = std::nextafter(x, infinity);
    boundaries[i] = x;
  }
  // Averages of squares are divided by: one that is not 0 stays so.
  if (!isSigned)
    boundaries[0] = std::numeric_limits<float>::min();
  return boundaries;
}
