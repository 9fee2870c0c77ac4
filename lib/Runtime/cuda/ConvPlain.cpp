// SPDX-License-Identifier: Apache-2.0
// Convolutions alone as graphs of cuDNN's, and the operation that all graphs of convolutions have.
#include "cuda/ConvGraph.h"

using namespace mpt::rt;

namespace {

enum : int64_t { X = 1, W, Y, Raw };

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

/// The tensor that the convolution makes: y, x or w.
enum class Result { Y, X, W };
Result resultOf(const mpt_conv_desc &d) {
  return d.kind == MPT_CONV_FORWARD ? Result::Y : d.kind == MPT_CONV_BACKWARD_DATA ? Result::X : Result::W;
}

struct Types {
  int64_t operand, other, result;
};
Types typesOf(const mpt_conv_desc &d) {
  switch (resultOf(d)) {
  case Result::Y:
    return {d.x_type, d.w_type, d.y_type};
  case Result::X:
    return {d.w_type, d.y_type, d.x_type};
  case Result::W:
    break;
  }
  return {d.x_type, d.y_type, d.w_type};
}

/// `apart`: the sums are an FP32 tensor of the engine's own, which an operation behind the convolution writes. cuDNN up
/// to 9.19 has no engine for 16-bit operands with an FP32 result otherwise.
dnn::Descriptor graphOf(GraphMaker &b, const mpt_conv_desc &d, bool apart) {
  const Result result = resultOf(d);
  auto tensor = [&](Result which, int64_t id, int type, bool isVirtual = false) {
    return which == Result::Y   ? b.tensor(id, type, d, d.n, d.oc, d.out, isVirtual)
           : which == Result::X ? b.tensor(id, type, d, d.n, d.ic, d.in, isVirtual)
                                : b.tensor(id, type, d, d.oc, d.ic / d.groups, d.kernel, isVirtual);
  };
  dnn::Descriptor x = tensor(Result::X, X, dnnType(d.x_type)), w = tensor(Result::W, W, dnnType(d.w_type)),
                  y = tensor(Result::Y, Y, dnnType(d.y_type));
  if (!apart)
    return b.graph({convOperation(b, d, x, w, y)});
  dnn::Descriptor raw = tensor(result, Raw, dnn::Float, /*isVirtual=*/true);
  dnn::Descriptor &out = result == Result::Y ? y : result == Result::X ? x : w;
  dnn::Descriptor stored = out;
  out = raw;
  dnn::Descriptor conv = convOperation(b, d, x, w, y);
  return b.graph({conv, b.pointwise(dnn::Identity, raw, nullptr, stored)});
}

} // namespace

dnn::Descriptor mpt::rt::convOperation(GraphMaker &b, const mpt_conv_desc &d, dnn::Descriptor x, dnn::Descriptor w,
                                       dnn::Descriptor y) {
  const Names &n = names[d.kind];
  dnn::Descriptor operation = b.make(n.descriptor);
  b.link(operation, {{n.x, x}, {n.w, w}, {n.y, y}, {n.convolution, b.convolution(d)}});
  const float one = 1, zero = 0;
  b.set(operation, n.alpha, dnn::FloatType, one);
  b.set(operation, n.beta, dnn::FloatType, zero);
  return b.finish(operation);
}

bool mpt::rt::isTakenByGraphs(const mpt_conv_desc &d) {
  if (d.kind < 0 || d.kind > 2)
    return false;
  const Types types = typesOf(d);
  if (dnnType(types.operand) < 0 || types.other != types.operand ||
      (types.result != types.operand && (types.result != MPT_FLOAT32 || d.groups != 1)))
    return false;
  for (int i = 0; i < 3; ++i)
    if ((d.in[i] + 2 * d.pad_low[i] - d.dilation[i] * (d.kernel[i] - 1) - 1) / d.stride[i] + 1 != d.out[i])
      return false;
  return true;
}

GraphRequest mpt::rt::requestConv(const mpt_conv_desc &d, size_t, bool tf32) {
  const bool rounds = tf32 && d.x_type == MPT_FLOAT32;
  GraphRequest request{(rounds ? "conv tf32 " : "conv ") + wordsOf(d), {}};
  if (!isTakenByGraphs(d))
    return request;
  const Types types = typesOf(d);
  for (bool apart : {false, true})
    if (!apart || types.result != types.operand) {
      GraphForm form{[=](GraphMaker &b) { return graphOf(b, d, apart); }, {X, W, Y}};
      form.single = types.operand == MPT_FLOAT32;
      form.tf32 = rounds;
      request.forms.push_back(std::move(form));
    }
  return request;
}
