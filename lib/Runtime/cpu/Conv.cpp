// SPDX-License-Identifier: Apache-2.0
// mpt_rt_conv: checks a convolution and picks who computes it: GEMMs, oneDNN, or else windows and columns.
#include "cpu/Gemm.h"

#include "core/Error.h"
#include "core/Profile.h"
#include "core/Types.h"

using namespace mpt::rt;

static mpt_status check(const mpt_conv_desc &d) {
  for (int64_t type : {d.x_type, d.w_type, d.y_type})
    if (type != MPT_FLOAT32 && type != MPT_FLOAT16 && type != MPT_BFLOAT16 && type != MPT_FLOAT8E4M3FN &&
        type != MPT_FLOAT8E5M2)
      return fail(MPT_UNSUPPORTED, "convolution: no kernel for %s", nameOf(type));
  if (d.bias_type && d.bias_type != MPT_FLOAT32 && d.bias_type != MPT_FLOAT16 && d.bias_type != MPT_BFLOAT16)
    return fail(MPT_UNSUPPORTED, "convolution: no kernel for a %s bias", nameOf(d.bias_type));
  if (d.groups < 1 || d.ic % d.groups || d.oc % d.groups || d.kind < 0 || d.kind > 2)
    return fail(MPT_INVALID_ARGUMENT, "convolution: expected %lld groups to divide %lld and %lld channels",
                static_cast<long long>(d.groups), static_cast<long long>(d.ic), static_cast<long long>(d.oc));
  if (d.flags & MPT_GEMM_TWO_CHAINS && (!(d.flags & MPT_GEMM_ORDERED) || d.kind != MPT_CONV_FORWARD || d.groups != 1 ||
                                        d.ic % 32 || d.x_type != MPT_BFLOAT16 || d.w_type != MPT_BFLOAT16))
    return fail(MPT_INVALID_ARGUMENT,
                "convolution: expected ordered sums in two chains of bfloat16 operands with a multiple of 32 channels, "
                "got %s x %s with %lld channels in %lld groups",
                nameOf(d.x_type), nameOf(d.w_type), static_cast<long long>(d.ic), static_cast<long long>(d.groups));
  return MPT_OK;
}

extern "C" int32_t mpt_rt_conv(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, const void *bias, void *x,
                               void *w, void *y, void *workspace) {
  ProfiledCall call(exec);
  int32_t status = check(*desc);
  if (status || convByGemm(exec, site, *desc, bias, x, w, y, status) ||
      convOneDnn(exec, site, *desc, bias, x, w, y, workspace, status))
    return status;
  return convOwn(exec, *desc, bias, x, w, y);
}
