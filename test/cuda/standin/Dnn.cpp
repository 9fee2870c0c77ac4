// SPDX-License-Identifier: Apache-2.0
// The stand-in's cuDNN: convolutions in plain loops, over any strides.
#include "Dnn.h"

#include <string>
#include <vector>

using namespace mpt::rt;
using namespace standin;

cu::Stream standin::dnnStream = nullptr;

namespace {

template <typename T, typename H> T &of(H handle) { return *reinterpret_cast<T *>(handle); }

dnn::Status bad(const std::string &text) {
  violation("cuDNN: " + text);
  return 2000;
}

enum class Pass { Forward, Data, Filter };

dnn::Status convolve(cu::Stream stream, const Problem &p, Pass kind, const void *x, const void *w, const void *y,
                     void *workspace, size_t bytes) {
  if (!p.fits())
    return bad("descriptions that do not fit together");
  auto at = [](const void *q) { return reinterpret_cast<uint64_t>(q); };
  std::string text = "convolution " + std::to_string(static_cast<int>(kind)) + " type " + std::to_string(p.x.type);
  for (const auto &[extents, rank] :
       {std::pair(p.x.extents, p.x.rank), {p.w.extents, p.w.rank}, {p.y.extents, p.y.rank}}) {
    text += ",";
    for (int i = 0; i < rank; ++i)
      text += " " + std::to_string(extents[i]);
  }
  note(text);
  enqueue(stream, standin::Kind::Convolution, [=] {
    Type type{};
    if (!typeOf(p.x.type, type))
      return violation("cuDNN: an unknown type");
    int rank = p.conv.rank + 2;
    int64_t counts[] = {Problem::elements(p.x.extents, rank), Problem::elements(p.w.extents, rank),
                        Problem::elements(p.y.extents, rank)};
    void *data[] = {translate(at(x), counts[0] * sizeOf(type), "convolution, x"),
                    translate(at(w), counts[1] * sizeOf(type), "convolution, w"),
                    translate(at(y), counts[2] * sizeOf(type), "convolution, y")};
    if (!data[0] || !data[1] || !data[2])
      return;
    if (bytes && !translate(at(workspace), static_cast<int64_t>(bytes), "convolution, workspace"))
      return;
    int out = kind == Pass::Forward ? 2 : kind == Pass::Data ? 0 : 1;
    std::vector<float> sums(static_cast<size_t>(counts[out]));
    auto value = [&](int i, int64_t at) { return static_cast<float>(load(type, data[i], at)); };
    forEachTerm(p, [&](int64_t xAt, int64_t wAt, int64_t yAt) {
      if (out == 2)
        sums[static_cast<size_t>(yAt)] += value(0, xAt) * value(1, wAt);
      else if (out == 0)
        sums[static_cast<size_t>(xAt)] += value(1, wAt) * value(2, yAt);
      else
        sums[static_cast<size_t>(wAt)] += value(0, xAt) * value(2, yAt);
    });
    for (size_t i = 0; i < sums.size(); ++i)
      store(type, data[out], static_cast<int64_t>(i), static_cast<double>(sums[i]));
  });
  return 0;
}

/// Two algorithms: a fast one that is not deterministic, and one that is. Of FP32 operands a third one is the fastest,
/// which rounds them.
dnn::Status propose(const Problem &p, int wanted, int *found, dnn::Performance *results) {
  if (forbidWhileCapturing("searching a convolution"))
    return 3000;
  *found = 0;
  if (!p.fits())
    return bad("descriptions that do not fit together");
  if (p.x.type == dnn::Float && wanted > 2)
    results[(*found)++] = {4, 0, 0.5f, 0, 1, dnn::DefaultMath, {}};
  for (int i = 0; i < 2 && i < wanted; ++i)
    results[(*found)++] = {i + 3, 0, 1.f + static_cast<float>(i), static_cast<size_t>(i) << 16, i, p.conv.math, {}};
  return 0;
}

Problem problem(dnn::TensorDesc x, dnn::FilterDesc w, dnn::TensorDesc y, dnn::ConvDesc conv) {
  return {of<Tensor>(x), of<Tensor>(y), of<Filter>(w), of<Convolution>(conv)};
}

bool plain(const void *alpha, const void *beta, int algorithm) {
  bool ok = *static_cast<const float *>(alpha) == 1 && *static_cast<const float *>(beta) == 0 && algorithm == 4;
  if (!ok)
    violation("cuDNN: an algorithm that may differ from run to run, or factors");
  return ok;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT dnn::Status cudnnCreate(dnn::Handle *handle) {
  *handle = reinterpret_cast<dnn::Handle>(&dnnStream);
  return 0;
}
EXPORT dnn::Status cudnnDestroy(dnn::Handle) { return 0; }
EXPORT size_t cudnnGetVersion() { return 92800; }
EXPORT const char *cudnnGetErrorString(dnn::Status) { return "the stand-in says so"; }
EXPORT dnn::Status cudnnSetStream(dnn::Handle, cu::Stream stream) {
  dnnStream = stream;
  return 0;
}
EXPORT dnn::Status cudnnCreateTensorDescriptor(dnn::TensorDesc *desc) {
  *desc = reinterpret_cast<dnn::TensorDesc>(new Tensor);
  return 0;
}
EXPORT dnn::Status cudnnSetTensorNdDescriptor(dnn::TensorDesc desc, int type, int rank, const int *extents,
                                              const int *strides) {
  Tensor &t = of<Tensor>(desc);
  t.type = type;
  t.rank = rank;
  std::copy(extents, extents + rank, t.extents);
  std::copy(strides, strides + rank, t.strides);
  return rank >= 4 ? 0 : bad("a tensor of fewer than four dimensions");
}
EXPORT dnn::Status cudnnDestroyTensorDescriptor(dnn::TensorDesc desc) {
  delete &of<Tensor>(desc);
  return 0;
}
EXPORT dnn::Status cudnnCreateFilterDescriptor(dnn::FilterDesc *desc) {
  *desc = reinterpret_cast<dnn::FilterDesc>(new Filter);
  return 0;
}
EXPORT dnn::Status cudnnSetFilterNdDescriptor(dnn::FilterDesc desc, int type, int format, int rank,
                                              const int *extents) {
  Filter &f = of<Filter>(desc);
  f.type = type;
  f.format = format;
  f.rank = rank;
  std::copy(extents, extents + rank, f.extents);
  return 0;
}
EXPORT dnn::Status cudnnDestroyFilterDescriptor(dnn::FilterDesc desc) {
  delete &of<Filter>(desc);
  return 0;
}
EXPORT dnn::Status cudnnCreateConvolutionDescriptor(dnn::ConvDesc *desc) {
  *desc = reinterpret_cast<dnn::ConvDesc>(new Convolution);
  return 0;
}
EXPORT dnn::Status cudnnSetConvolutionNdDescriptor(dnn::ConvDesc desc, int rank, const int *pads, const int *strides,
                                                   const int *dilations, int mode, int compute) {
  Convolution &c = of<Convolution>(desc);
  c.rank = rank;
  c.mode = mode;
  c.compute = compute;
  std::copy(pads, pads + rank, c.pads);
  std::copy(strides, strides + rank, c.strides);
  std::copy(dilations, dilations + rank, c.dilations);
  return 0;
}
EXPORT dnn::Status cudnnSetConvolutionGroupCount(dnn::ConvDesc desc, int groups) {
  of<Convolution>(desc).groups = groups;
  return 0;
}
EXPORT dnn::Status cudnnSetConvolutionMathType(dnn::ConvDesc desc, int type) {
  of<Convolution>(desc).math = type;
  return 0;
}
EXPORT dnn::Status cudnnDestroyConvolutionDescriptor(dnn::ConvDesc desc) {
  delete &of<Convolution>(desc);
  return 0;
}
EXPORT dnn::Status cudnnFindConvolutionForwardAlgorithmEx(dnn::Handle, dnn::TensorDesc x, const void *,
                                                          dnn::FilterDesc w, const void *, dnn::ConvDesc conv,
                                                          dnn::TensorDesc y, void *, int wanted, int *found,
                                                          dnn::Performance *results, void *, size_t) {
  return propose(problem(x, w, y, conv), wanted, found, results);
}
EXPORT dnn::Status cudnnFindConvolutionBackwardDataAlgorithmEx(dnn::Handle, dnn::FilterDesc w, const void *,
                                                               dnn::TensorDesc y, const void *, dnn::ConvDesc conv,
                                                               dnn::TensorDesc x, void *, int wanted, int *found,
                                                               dnn::Performance *results, void *, size_t) {
  return propose(problem(x, w, y, conv), wanted, found, results);
}
EXPORT dnn::Status cudnnFindConvolutionBackwardFilterAlgorithmEx(dnn::Handle, dnn::TensorDesc x, const void *,
                                                                 dnn::TensorDesc y, const void *, dnn::ConvDesc conv,
                                                                 dnn::FilterDesc w, void *, int wanted, int *found,
                                                                 dnn::Performance *results, void *, size_t) {
  return propose(problem(x, w, y, conv), wanted, found, results);
}
EXPORT dnn::Status cudnnConvolutionForward(dnn::Handle, const void *alpha, dnn::TensorDesc xDesc, const void *x,
                                           dnn::FilterDesc wDesc, const void *w, dnn::ConvDesc conv, int algorithm,
                                           void *workspace, size_t bytes, const void *beta, dnn::TensorDesc yDesc,
                                           void *y) {
  plain(alpha, beta, algorithm);
  return convolve(dnnStream, problem(xDesc, wDesc, yDesc, conv), Pass::Forward, x, w, y, workspace, bytes);
}
EXPORT dnn::Status cudnnConvolutionBackwardData(dnn::Handle, const void *alpha, dnn::FilterDesc wDesc, const void *w,
                                                dnn::TensorDesc yDesc, const void *y, dnn::ConvDesc conv, int algorithm,
                                                void *workspace, size_t bytes, const void *beta, dnn::TensorDesc xDesc,
                                                void *x) {
  plain(alpha, beta, algorithm);
  return convolve(dnnStream, problem(xDesc, wDesc, yDesc, conv), Pass::Data, x, w, y, workspace, bytes);
}
EXPORT dnn::Status cudnnConvolutionBackwardFilter(dnn::Handle, const void *alpha, dnn::TensorDesc xDesc, const void *x,
                                                  dnn::TensorDesc yDesc, const void *y, dnn::ConvDesc conv,
                                                  int algorithm, void *workspace, size_t bytes, const void *beta,
                                                  dnn::FilterDesc wDesc, void *w) {
  plain(alpha, beta, algorithm);
  return convolve(dnnStream, problem(xDesc, wDesc, yDesc, conv), Pass::Filter, x, w, y, workspace, bytes);
}
