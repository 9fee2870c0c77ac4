// SPDX-License-Identifier: Apache-2.0
// The few lines of test framework that the runtime's unit tests share.
#ifndef MPT_TEST_CAPI_CHECK_H
#define MPT_TEST_CAPI_CHECK_H

#include <cstdio>

namespace mpt::test {

inline int failures = 0;

/// Reports a failed expectation and goes on.
inline bool expect(bool ok, const char *what, const char *file, int line) {
  if (!ok) {
    fprintf(stderr, "%s:%d: expected %s\n", file, line, what);
    ++failures;
  }
  return ok;
}

inline int finish(const char *name) {
  printf("%s: %s\n", name, failures ? "FAILED" : "passed");
  return failures ? 1 : 0;
}

} // namespace mpt::test

#define EXPECT(condition) mpt::test::expect((condition), #condition, __FILE__, __LINE__)

#endif
