// SPDX-License-Identifier: Apache-2.0
// A GEMM's descriptors and the algorithm chosen for it, kept between calls.
#ifndef MPT_RUNTIME_CUDA_GEMMSITE_H
#define MPT_RUNTIME_CUDA_GEMMSITE_H

#include "cuda/Blas.h"
#include "cuda/Gemm.h"

namespace mpt::rt {

struct GemmSite : SiteCache {
  explicit GemmSite(const lt::Functions &api) : api(api) {}
  ~GemmSite() override {
    for (lt::Layout layout : {a, b, d})
      if (layout)
        api.MatrixLayoutDestroy(layout);
    if (matmul)
      api.MatmulDescDestroy(matmul);
  }
  const lt::Functions &api;
  mpt_gemm_desc desc;
  uint32_t alignments[3];
  const void *bias;
  OperandScales scales;
  Chain chain;
  bool tf32 = false;                // operands are FP32, and rounded to TF32
  bool fastSums = false;            // CUBLASLT_MATMUL_DESC_FAST_ACCUM
  std::unique_ptr<ApartGemm> apart; // for chained flags
  bool isApart = false;             // the better way, or the only one
  lt::MatmulDesc matmul = nullptr;
  lt::Layout a = nullptr, b = nullptr, d = nullptr;
  lt::Heuristic chosen;
  bool remembered = false;                   // chosen by an earlier process, not tried in this one
  int64_t calls = 1, strides[3] = {0, 0, 0}; // calls: one a matrix of the batch that the strided one does not cover
};

int blasType(int64_t dtype); ///< -1 for types that cuBLASLt does not multiply
mpt_status ltCheck(lt::Status status, const char *what);

/// How the operands lie as cuBLASLt sees them: our b, our a, and the result.
void alignmentsOf(const mpt_gemm_desc &desc, const void *a, const void *b, const void *d, uint32_t (&out)[3]);

/// Makes the descriptors of `site` for its GEMM.
mpt_status describeGemm(GemmSite &site);

} // namespace mpt::rt

#endif // MPT_RUNTIME_CUDA_GEMMSITE_H
