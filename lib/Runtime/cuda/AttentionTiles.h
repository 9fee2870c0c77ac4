// SPDX-License-Identifier: Apache-2.0
// Attention by kernels of the library, in tiles: where probabilities are dropped, or heads share keys without cuDNN.
#ifndef MPT_RUNTIME_CUDA_ATTENTIONTILES_H
#define MPT_RUNTIME_CUDA_ATTENTIONTILES_H

#include "cuda/CudaDevice.h"

#include "mpt-c/attention_tiles.hpp"

#include <memory>
#include <vector>

namespace mpt::rt {

/// The words that kernels by rows read, in the kernels' order (lib/Target/CUDA/AttentionKernels.cpp).
struct AttentionGeometry {
  int64_t rows, parts; // parts: rows times lanes
  int64_t heads, queries, keys, valueDepth, causal;
  int64_t bias[4], output[3], outputGradient[3];
};

/// Without `rows` and `parts`.
AttentionGeometry geometryOf(const mpt_attention_desc &desc);

/// One attention, or its gradients.
class AttentionByTiles {
public:
  /// `dropout` is null where there is none. Copies to the device and waits.
  static mpt_status make(CudaDevice &device, const mpt_attention_desc &desc, const mpt_attention_dropout *dropout,
                         bool gradient, std::unique_ptr<AttentionByTiles> &out);
  /// Pointers as planAttention and planAttentionGradient have them; `key` where there is dropout.
  mpt_status run(CudaDevice &device, const std::vector<void *> &pointers, void *key);

private:
  AttentionByTiles(const mpt_attention_desc &desc, bool drops, bool gradient)
      : desc(desc), drops(drops), gradient(gradient) {}
  mpt_status launch(CudaDevice &device, attention::Kind kind, const std::vector<void *> &operands, void *key,
                    const std::vector<void *> &rest);

  const mpt_attention_desc desc;
  const bool drops, gradient;
  std::unique_ptr<Memory> words[3], geometry; // words by kind
};

} // namespace mpt::rt

#endif
