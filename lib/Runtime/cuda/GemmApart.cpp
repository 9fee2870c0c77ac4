// SPDX-License-Identifier: Apache-2.0
// GEMMs whose epilogue cuBLASLt does not have, or not as fast: the GEMM, then the epilogue by itself.
#include "cuda/Gemm.h"

#include "core/Types.h"

#include <cstring>
#include <string>
#include <vector>

using namespace mpt::rt;

namespace {

constexpr int64_t sumFlags = MPT_GEMM_SUM_A | MPT_GEMM_SUM_B | MPT_GEMM_SUM_D;

/// The matrix that is summed, down its columns, as the second operand of a GEMM with ones.
mpt_gemm_desc sumOf(const mpt_gemm_desc &g) {
  mpt_gemm_desc s{};
  s.m = s.batch0 = s.batch1 = s.a_col = s.d_col = 1;
  s.alpha = 1;
  if (g.flags & MPT_GEMM_SUM_A) {
    s.n = g.m, s.k = g.k, s.b_type = g.a_type, s.b_row = g.a_col, s.b_col = g.a_row;
  } else if (g.flags & MPT_GEMM_SUM_B) {
    s.n = g.n, s.k = g.k, s.b_type = g.b_type, s.b_row = g.b_row, s.b_col = g.b_col;
  } else {
    s.n = g.n, s.k = g.m, s.b_type = g.d_type, s.b_row = g.d_row, s.b_col = g.d_col;
  }
  s.a_type = s.b_type;
  s.a_row = s.k;
  s.d_type = g.bias_type;
  s.d_row = s.n;
  return s;
}

std::vector<uint8_t> onesOf(int64_t dtype, int64_t count) {
  uint16_t narrow = dtype == MPT_FLOAT16 ? 0x3c00 : 0x3f80;
  float wide = 1;
  const void *one = dtype == MPT_FLOAT32 ? static_cast<const void *>(&wide) : &narrow;
  size_t size = static_cast<size_t>(sizeOf(dtype));
  std::vector<uint8_t> ones(static_cast<size_t>(count) * size);
  for (size_t i = 0; i < ones.size(); i += size)
    memcpy(&ones[i], one, size);
  return ones;
}

} // namespace

mpt_status ApartGemm::make(CudaDevice &device, const mpt_gemm_desc &g, std::unique_ptr<ApartGemm> &out) {
  std::unique_ptr<ApartGemm> made(new ApartGemm(g));
  if (g.flags & sumFlags) {
    mpt_gemm_desc s = sumOf(g);
    if (!suffixOf(s.b_type))
      return fail(MPT_UNSUPPORTED, "gemm: expected a matrix of FP32, FP16 or BF16 to sum, got %s", nameOf(s.b_type));
    std::vector<uint8_t> ones = onesOf(s.a_type, s.k);
    if (mpt_status status = device.place("gemm", ones.data(), ones.size(), made->ones))
      return status;
  }
  out = std::move(made);
  return MPT_OK;
}

mpt_status ApartGemm::run(const mpt_exec *exec, const void *a, const void *b, const void *bias, void *d,
                          const OperandScales &scales, const Chain &chain) {
  mpt_gemm_desc plain = desc;
  plain.flags &= ~chainedFlags;
  if (!(plain.flags & MPT_GEMM_BIAS))
    plain.bias_type = 0;
  bool before = (desc.flags & MPT_GEMM_KEEP) && (desc.flags & MPT_GEMM_GELU_TANH);
  if (mpt_status status =
          gemm(exec, matmul, plain, a, b, plain.flags & MPT_GEMM_BIAS ? bias : nullptr, before ? chain.aux : d, scales))
    return status;
  if (desc.flags & ~sumFlags & chainedFlags)
    if (mpt_status status = activate(deviceOf(exec), d, chain))
      return status;
  return desc.flags & sumFlags ? sum(exec, a, b, d, chain.sums) : MPT_OK;
}

mpt_status ApartGemm::activate(CudaDevice &device, void *d, const Chain &chain) const {
  // Kernels for whole matrices, named after how many elements they have.
  bool gradient = (desc.flags & MPT_GEMM_GELU_TANH_GRADIENT) != 0;
  const char *suffix = suffixOf(desc.d_type);
  std::string name = std::string(gradient ? "mpt_gelu_tanh_gradient_" : "mpt_gelu_tanh_") + (suffix ? suffix : "") +
                     "_" + std::to_string(desc.m * desc.n);
  int64_t number = device.kernelNumber(name.c_str());
  if (!suffix || desc.d_row != desc.n || !(desc.flags & (MPT_GEMM_GELU_TANH | MPT_GEMM_GELU_TANH_GRADIENT)) ||
      number < 0)
    return fail(MPT_UNSUPPORTED, "gemm: cuBLASLt has no such epilogue, and the model has no kernel %s", name.c_str());
  void *forward[] = {desc.flags & MPT_GEMM_KEEP ? chain.aux : d, d}, *backward[] = {d, chain.aux, d};
  return device.launch(number, gradient ? backward : forward);
}

mpt_status ApartGemm::sum(const mpt_exec *exec, const void *a, const void *b, const void *d, void *sums) {
  const void *summed = desc.flags & MPT_GEMM_SUM_A ? a : desc.flags & MPT_GEMM_SUM_B ? b : d;
  return gemm(exec, total, sumOf(desc), ones->start, summed, nullptr, sums);
}
