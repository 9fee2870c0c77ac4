// SPDX-License-Identifier: Apache-2.0
// Tensors to run kernels on, and comparison with wanted values.
#ifndef MPT_TEST_LOWERING_KERNELCHECKS_H
#define MPT_TEST_LOWERING_KERNELCHECKS_H

#include "KernelRunner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

inline int failures = 0;
inline std::mt19937 generator(7);

inline TestTensor uniform(std::vector<int64_t> shape, double low, double high) {
  TestTensor result{std::move(shape), {}};
  std::uniform_real_distribution<double> values(low, high);
  for (int64_t i = 0, n = result.count(); i < n; ++i)
    result.values.push_back(static_cast<float>(values(generator)));
  return result;
}
inline TestTensor fill(std::vector<int64_t> shape, const std::function<double(int64_t)> &value) {
  TestTensor result{std::move(shape), {}};
  for (int64_t i = 0, n = result.count(); i < n; ++i)
    result.values.push_back(value(i));
  return result;
}

/// Each value within `relative` of the wanted one, or `absolute` where that is more.
inline void expect(const char *name, const std::vector<TestTensor> &got, const std::vector<std::vector<double>> &want,
                   double relative, double absolute = 0) {
  if (got.size() != want.size()) {
    std::printf("%s: got %zu results, expected %zu\n", name, got.size(), want.size());
    ++failures;
    return;
  }
  for (size_t r = 0; r < got.size(); ++r) {
    double worst = 0;
    size_t at = 0, bad = 0;
    for (size_t i = 0; i < want[r].size(); ++i) {
      double g = got[r].values[i], w = want[r][i];
      if (g == w || (std::isnan(g) && std::isnan(w)))
        continue;
      double excess = std::fabs(g - w) / std::max(relative * std::fabs(w), std::max(absolute, 1e-300));
      if (!(excess <= 1))
        ++bad;
      if (!(excess <= worst)) {
        worst = excess;
        at = i;
      }
    }
    if (bad) {
      std::printf("%s: result %zu: %zu of %zu values off; at %zu expected %.9g, got %.9g (%.3g times the tolerance)\n",
                  name, r, bad, want[r].size(), at, want[r][at], got[r].values[at], worst);
      ++failures;
    }
  }
}

#endif // MPT_TEST_LOWERING_KERNELCHECKS_H
