// SPDX-License-Identifier: Apache-2.0
// Convolutions of 16-bit operands whose results stay FP32: graphs of one operation, which cuDNN's other interface
// lacks.
#include "cuda/ConvGraph.h"

#include <cstring>

using namespace mpt::rt;

namespace {

enum : int64_t { X = 1, W, Y };

/// The names of one kind of convolution.
struct Names {
  int descriptor, x, w, y, convolution, alpha, beta;
};
constexpr Names names[] = {{dnn::ForwardDescriptor, dnn::ForwardX, dnn::ForwardW, dnn::ForwardY,
                            dnn::ForwardConvolution, dnn::ForwardAlpha, dnn::ForwardBeta},
                           {dnn::BackwardDataDescriptor, dnn::BackwardDataX, dnn::BackwardDataW, dnn::BackwardDataY,
                            dnn::BackwardDataConvolution, dnn::BackwardDataAlpha, dnn::BackwardDataBeta},
                           {dnn::BackwardWeightsDescriptor, dnn::BackwardWeightsX, dnn::BackwardWeightsW,
                            dnn::BackwardWeightsY, dnn::BackwardWeightsConvolution, dnn::BackwardWeightsAlpha,
                            dnn::BackwardWeightsBeta}};

dnn::Descriptor graphOf(GraphMaker &b, dnn::Handle handle, const mpt_conv_desc &d) {
  const Names &n = names[d.kind];
  dnn::Descriptor operation = b.make(n.descriptor);
  b.link(operation, {{n.x, b.tensor(X, dnnType(d.x_type), d, d.n, d.ic, d.in)},
                     {n.w, b.tensor(W, dnnType(d.w_type), d, d.oc, d.ic, d.kernel)},
                     {n.y, b.tensor(Y, dnnType(d.y_type), d, d.n, d.oc, d.out)},
                     {n.convolution, b.convolution(d)}});
  const float one = 1, zero = 0;
  b.set(operation, n.alpha, dnn::FloatType, one);
  b.set(operation, n.beta, dnn::FloatType, zero);
  return b.graph(handle, {b.finish(operation)});
}

} // namespace

bool mpt::rt::isWideConv(const mpt_conv_desc &d) {
  const int64_t types[] = {d.y_type, d.x_type, d.w_type}; // the result's by kind
  if (d.kind < 0 || d.kind > 2 || types[d.kind] != MPT_FLOAT32 || d.groups != 1)
    return false;
  const int64_t a = d.kind == MPT_CONV_BACKWARD_DATA ? d.w_type : d.x_type;
  const int64_t b = d.kind == MPT_CONV_FORWARD ? d.w_type : d.y_type;
  return a == b && (a == MPT_FLOAT16 || a == MPT_BFLOAT16) && memcmp(d.pad_low, d.pad_high, sizeof d.pad_low) == 0;
}

std::shared_ptr<GraphPlan> mpt::rt::planWideConv(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &d,
                                                 const std::vector<void *> &pointers) {
  if (!library.graphs || !areAligned(pointers))
    return nullptr;
  auto [known, isNew] = library.plans.try_emplace(std::string(reinterpret_cast<const char *>(&d), sizeof d));
  if (isNew) {
    std::vector<GraphForm> forms;
    forms.push_back({[=, &library](GraphMaker &b) { return graphOf(b, library.handle, d); }, {X, W, Y}});
    known->second = searchPlan(device, library, forms, pointers);
  }
  return known->second;
}
