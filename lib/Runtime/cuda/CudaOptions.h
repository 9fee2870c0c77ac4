// SPDX-License-Identifier: Apache-2.0
// Options of a trainer on CUDA (docs/cuda.md).
#ifndef MPT_RUNTIME_CUDA_CUDAOPTIONS_H
#define MPT_RUNTIME_CUDA_CUDAOPTIONS_H

#include "core/Options.h"

namespace mpt::rt {

/// The preferred way to compute convolutions.
enum class ConvWay { Any, Library, Implicit, Columns, Direct };

/// How much is measured in first runs: nothing, one or two plans of cuDNN's and cuBLASLt's proposals, or all of them.
enum class Effort { Off, Quick, Full };

struct CudaOptions {
  std::string driver, cublaslt;     ///< files; looked for by their usual names where empty
  std::string libraries;            ///< folders of cuBLASLt, cuDNN, NCCL and libraries that they open, with colons
  std::string cudnn;                ///< likewise; "none": cuDNN is not used
  std::string nccl;                 ///< likewise; "none": values of several processes pass through the host
  std::string cache = usualCache(); ///< file of choices by searches; none where empty
  Effort search = Effort::Quick;
  ConvWay convolutions = ConvWay::Any;
  bool tf32 = false;             ///< FP32 operands of GEMMs and convolutions are rounded to TF32
  bool fastSums = false;         ///< GEMMs of two E4M3 operands may add up in the hardware's narrower sums
  bool ptxOnly = false;          ///< machine code in the library is passed over
  bool synchronous = false;      ///< every call is waited for, so that an error names the node
  bool eager = false;            ///< no graphs of steps
  int64_t scoreBytes = 64 << 20; ///< most memory for scores of attention without cuDNN

  mpt_status read(Options &options);
  /// In the user's cache folder ($XDG_CACHE_HOME or ~/.cache); empty where there is none.
  static std::string usualCache();
};

} // namespace mpt::rt

#endif
