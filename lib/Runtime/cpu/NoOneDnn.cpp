// SPDX-License-Identifier: Apache-2.0
// In place of oneDNN in builds without it: takes nothing, so that our own kernels compute everything.
#include "cpu/Gemm.h"

namespace mpt::rt {

bool oneDnnNative(int64_t) { return false; }

bool convOneDnn(mpt_exec *, int64_t, const mpt_conv_desc &, const void *, void *, void *, void *, void *, int32_t &) {
  return false;
}

} // namespace mpt::rt
