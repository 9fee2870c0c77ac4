// SPDX-License-Identifier: Apache-2.0
// Attention through cuDNN's fused engines: graphs of GEMMs, softmax and their gradients, one engine for each.
#ifndef MPT_RUNTIME_CUDA_ATTENTIONGRAPH_H
#define MPT_RUNTIME_CUDA_ATTENTIONGRAPH_H

#include "cuda/GraphPlan.h"

namespace mpt::rt {

/// The graph of attention, or of its gradients, for cuDNN of `version`.
GraphRequest requestAttention(const mpt_attention_desc &desc, bool gradient, size_t version);

/// Has the plans made that planAttention() or planAttentionGradient() will ask for.
void expectAttention(CudaDevice &device, ConvLibrary &library, const mpt_attention_desc &desc,
                     const std::vector<void *> &pointers, bool gradient);

/// Plans attention that leaves its statistics (max + log of the sum, FP32). Pointers of a run: q, k, v, bias (null
/// where there is none), o, stats. Null where cuDNN has no deterministic engine, or the operands are less aligned than
/// it takes; not to be called while a graph is recorded. One plan serves all calls of one description.
std::shared_ptr<GraphPlan> planAttention(CudaDevice &device, ConvLibrary &library, const mpt_attention_desc &desc,
                                         const std::vector<void *> &pointers);

/// The same for its gradients, in parts of batch and heads whose plan needs at most `most` bytes of scratch. Pointers
/// of a run: q, k, v, bias (null where there is none), o, stats, d_o, dq, dk, dv.
std::shared_ptr<GraphPlan> planAttentionGradient(CudaDevice &device, ConvLibrary &library,
                                                 const mpt_attention_desc &desc, const std::vector<void *> &pointers,
                                                 int64_t most = ConvLibrary::workspaceBytes);

} // namespace mpt::rt

#endif
