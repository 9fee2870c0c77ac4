// SPDX-License-Identifier: Apache-2.0
// In place of oneDNN on a processor that multiplies BF16 itself: takes the same GEMMs, so that the runtime's work
// around them is tested where oneDNN would refuse them. Takes scratch as oneDNN does, and overwrites it.
#include "core/Context.h"
#include "cpu/Gemm.h"
#include "mpt-c/runtime.h"

#include <cstring>

bool mpt::rt::gemmOneDnn(mpt_exec *exec, int64_t, const mpt_gemm_desc &desc, const void *a, const void *b,
                         const void *bias, void *d) {
  bool plain = desc.a_type == MPT_BFLOAT16 && desc.b_type == MPT_BFLOAT16 && desc.flags == 0;
  if (!plain)
    return false;
  mpt::rt::ScratchLease scratch(exec);
  constexpr int64_t bytes = 1 << 16;
  if (void *pad = scratch.get(bytes))
    memset(pad, 0xff, bytes);
  return runOwnGemm(exec, desc, a, b, bias, d) == MPT_OK;
}
