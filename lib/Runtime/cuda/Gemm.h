// Products on the device, for mpt_cuda_gemm and for convolutions that are products.
#ifndef MPT_RUNTIME_CUDA_GEMM_H
#define MPT_RUNTIME_CUDA_GEMM_H

#include "core/Context.h"
#include "core/Error.h"

namespace mpt::rt {

/// FP32 numbers on the device by which 8-bit operands are multiplied; null: by 1.
struct OperandScales {
  const void *a = nullptr, *b = nullptr;
};

/// Enqueues a product; `slot` keeps what was prepared for it.
mpt_status gemm(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_gemm_desc &desc, const void *a,
                const void *b, const void *bias, void *d, const OperandScales &scales = {});

} // namespace mpt::rt

#endif
