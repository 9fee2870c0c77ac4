// The stand-in's cuDNN: convolutions in plain loops, over any strides.
#include "StandIn.h"
#include "Values.h"

#include "cuda/Convolutions.h"

#include <string>
#include <vector>

using namespace mpt::rt;
using namespace standin;

namespace {

struct Tensor {
  int type = -1, rank = 0, extents[5], strides[5];
};
struct Filter {
  int type = -1, format = 0, rank = 0, extents[5];
};
struct Convolution {
  int rank = 0, pads[3], strides[3], dilations[3], mode = 0, compute = 0, groups = 1, math = 0;
};

template <typename T, typename H> T &of(H handle) { return *reinterpret_cast<T *>(handle); }

dnn::Status bad(const std::string &text) {
  violation("cuDNN: " + text);
  return 2000;
}

bool typeOf(int type, Type &out) {
  out = type == dnn::Half ? Type::F16 : type == dnn::BFloat16 ? Type::BF16 : Type::F32;
  return type == dnn::Float || type == dnn::Half || type == dnn::BFloat16;
}

struct Problem {
  Tensor x, y;
  Filter w;
  Convolution conv;

  bool fits() const {
    int rank = conv.rank;
    bool ok = x.rank == rank + 2 && y.rank == rank + 2 && w.rank == rank + 2 && w.format == dnn::ChannelsLast &&
              conv.mode == dnn::CrossCorrelation && conv.compute == dnn::Float && x.type == y.type &&
              x.type == w.type && x.extents[0] == y.extents[0] && w.extents[0] == y.extents[1] &&
              w.extents[1] * conv.groups == x.extents[1] && (x.type != dnn::Float || conv.math == dnn::FmaMath);
    for (int i = 0; ok && i < rank; ++i)
      ok = y.extents[2 + i] ==
           (x.extents[2 + i] + 2 * conv.pads[i] - conv.dilations[i] * (w.extents[2 + i] - 1) - 1) / conv.strides[i] + 1;
    return ok;
  }
  int64_t taps() const {
    int64_t n = 1;
    for (int i = 0; i < conv.rank; ++i)
      n *= w.extents[2 + i];
    return n;
  }
  static int64_t elements(const int *extents, int rank) {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i)
      n *= extents[i];
    return n;
  }
};

/// Calls fn(x element, w element, y element) for every term of the convolution.
template <typename F> void forEachTerm(const Problem &p, F fn) {
  int rank = p.conv.rank, ic = p.w.extents[1], oc = p.w.extents[0] / p.conv.groups;
  int64_t positions = 1, taps = p.taps();
  for (int i = 0; i < rank; ++i)
    positions *= p.y.extents[2 + i];
  for (int n = 0; n < p.y.extents[0]; ++n)
    for (int64_t position = 0; position < positions; ++position)
      for (int64_t tap = 0; tap < taps; ++tap) {
        int64_t xAt = int64_t(n) * p.x.strides[0], yAt = int64_t(n) * p.y.strides[0], restP = position, restT = tap;
        bool inside = true;
        for (int i = rank - 1; i >= 0; --i) {
          int64_t o = restP % p.y.extents[2 + i], k = restT % p.w.extents[2 + i];
          restP /= p.y.extents[2 + i];
          restT /= p.w.extents[2 + i];
          int64_t at = o * p.conv.strides[i] - p.conv.pads[i] + k * p.conv.dilations[i];
          inside = inside && at >= 0 && at < p.x.extents[2 + i];
          xAt += at * p.x.strides[2 + i];
          yAt += o * p.y.strides[2 + i];
        }
        if (!inside)
          continue;
        for (int o = 0; o < p.w.extents[0]; ++o)
          for (int c = 0; c < ic; ++c)
            fn(xAt + int64_t(o / oc * ic + c) * p.x.strides[1], (int64_t(o) * taps + tap) * ic + c,
               yAt + int64_t(o) * p.y.strides[1]);
      }
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

/// Two algorithms: a fast one that is not deterministic, and one that is.
dnn::Status propose(const Problem &p, int wanted, int *found, dnn::Performance *results) {
  if (forbidWhileCapturing("searching a convolution"))
    return 3000;
  *found = 0;
  if (!p.fits())
    return bad("descriptions that do not fit together");
  for (int i = 0; i < 2 && i < wanted; ++i)
    results[(*found)++] = {i + 3, 0, 1.f + static_cast<float>(i), static_cast<size_t>(i) << 16, i, p.conv.math, {}};
  return 0;
}

cu::Stream current = nullptr;

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
  *handle = reinterpret_cast<dnn::Handle>(&current);
  return 0;
}
EXPORT dnn::Status cudnnDestroy(dnn::Handle) { return 0; }
EXPORT size_t cudnnGetVersion() { return 92800; }
EXPORT const char *cudnnGetErrorString(dnn::Status) { return "the stand-in says so"; }
EXPORT dnn::Status cudnnSetStream(dnn::Handle, cu::Stream stream) {
  current = stream;
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
  return convolve(current, problem(xDesc, wDesc, yDesc, conv), Pass::Forward, x, w, y, workspace, bytes);
}
EXPORT dnn::Status cudnnConvolutionBackwardData(dnn::Handle, const void *alpha, dnn::FilterDesc wDesc, const void *w,
                                                dnn::TensorDesc yDesc, const void *y, dnn::ConvDesc conv, int algorithm,
                                                void *workspace, size_t bytes, const void *beta, dnn::TensorDesc xDesc,
                                                void *x) {
  plain(alpha, beta, algorithm);
  return convolve(current, problem(xDesc, wDesc, yDesc, conv), Pass::Data, x, w, y, workspace, bytes);
}
EXPORT dnn::Status cudnnConvolutionBackwardFilter(dnn::Handle, const void *alpha, dnn::TensorDesc xDesc, const void *x,
                                                  dnn::TensorDesc yDesc, const void *y, dnn::ConvDesc conv,
                                                  int algorithm, void *workspace, size_t bytes, const void *beta,
                                                  dnn::FilterDesc wDesc, void *w) {
  plain(alpha, beta, algorithm);
  return convolve(current, problem(xDesc, wDesc, yDesc, conv), Pass::Filter, x, w, y, workspace, bytes);
}
