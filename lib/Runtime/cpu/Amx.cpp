// SPDX-License-Identifier: Apache-2.0
// Whether this processor has matrix tiles.
#include "cpu/Amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

bool mpt::rt::hasAmx() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (bf16 | tile)) != (bf16 | tile))
      return false;
    // The system saves tiles of processes that ask for it.
    constexpr long request = 0x1023, tileData = 18;
    return syscall(SYS_arch_prctl, request, tileData) == 0;
  }();
  return has;
}
