// SPDX-License-Identifier: Apache-2.0
// glibc has this function from 2.36 on; LLVM and libstdc++ were built against such a one.
#include <stdint.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}
