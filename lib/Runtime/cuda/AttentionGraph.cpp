// Attention through cuDNN's fused engines.
#include "cuda/AttentionGraph.h"

using namespace mpt::rt;

std::shared_ptr<GraphPlan> mpt::rt::planAttention(CudaDevice &, ConvLibrary &, const mpt_attention_desc &,
                                                  const std::vector<void *> &) {
  return nullptr;
}

std::shared_ptr<GraphPlan> mpt::rt::planAttentionGradient(CudaDevice &, ConvLibrary &, const mpt_attention_desc &,
                                                          const std::vector<void *> &) {
  return nullptr;
}
