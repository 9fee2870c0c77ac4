// SPDX-License-Identifier: Apache-2.0
// GEMMs on the device, for mpt_cuda_gemm and for convolutions that are GEMMs.
#ifndef MPT_RUNTIME_CUDA_GEMM_H
#define MPT_RUNTIME_CUDA_GEMM_H

#include "core/Context.h"
#include "core/Error.h"
#include "cuda/CudaDevice.h"

namespace mpt::rt {

/// FP32 scalars on the device by which 8-bit operands are multiplied; null: by 1.
struct OperandScales {
  const void *a = nullptr, *b = nullptr;
};

/// Data that epilogues exchange (mpt_cuda_gemm_chained); null where no flag wants it.
struct Chain {
  void *aux = nullptr, *sums = nullptr;
};

/// Flags of GEMMs that cuBLASLt may not have an algorithm for: an activation's gradient, or something is made or
/// kept beside the result.
inline constexpr int64_t chainedFlags = MPT_GEMM_GELU_TANH | MPT_GEMM_KEEP | MPT_GEMM_RELU_GRADIENT |
                                        MPT_GEMM_GELU_TANH_GRADIENT | MPT_GEMM_SUM_A | MPT_GEMM_SUM_B | MPT_GEMM_SUM_D;

/// Enqueues a GEMM; `slot` keeps its algorithm and descriptors. Bias and sums are of desc.bias_type.
mpt_status gemm(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_gemm_desc &desc, const void *a,
                const void *b, const void *bias, void *d, const OperandScales &scales = {}, const Chain &chain = {});

/// A GEMM with chained flags as a GEMM without, kernels of the library, and sums as GEMMs with ones.
class ApartGemm {
public:
  /// Copies to the device and waits.
  static mpt_status make(CudaDevice &device, const mpt_gemm_desc &desc, std::unique_ptr<ApartGemm> &out);
  mpt_status run(const mpt_exec *exec, const void *a, const void *b, const void *bias, void *d,
                 const OperandScales &scales, const Chain &chain);

private:
  explicit ApartGemm(const mpt_gemm_desc &desc) : desc(desc) {}
  mpt_status activate(CudaDevice &device, void *d, const Chain &chain) const;
  mpt_status sum(const mpt_exec *exec, const void *a, const void *b, const void *d, void *sums);
  mpt_gemm_desc desc;
  std::unique_ptr<Memory> ones; ///< as many as there are summands, in their type
  std::unique_ptr<SiteCache> matmul, total;
};

} // namespace mpt::rt

#endif
