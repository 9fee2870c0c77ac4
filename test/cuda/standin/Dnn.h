// SPDX-License-Identifier: Apache-2.0
// Convolutions as the fake cuDNN computes them.
#ifndef MPT_TEST_CUDA_STANDIN_DNN_H
#define MPT_TEST_CUDA_STANDIN_DNN_H

#include "StandIn.h"
#include "Values.h"

#include "cuda/Convolutions.h"

#include <atomic>

namespace standin {

namespace dnn = mpt::rt::dnn;
namespace cu = mpt::rt::cu;

enum { ChannelsLast = 1 };
struct Tensor {
  int type = -1, rank = 0, extents[5], strides[5];
};
struct Filter {
  int type = -1, format = 0, rank = 0, extents[5];
};
struct Convolution {
  int rank = 0, pads[3], strides[3], dilations[3], mode = 0, compute = 0, groups = 1;
};

inline bool typeOf(int type, Type &out) {
  out = type == dnn::Half ? Type::F16 : type == dnn::BFloat16 ? Type::BF16 : Type::F32;
  return type == dnn::Float || type == dnn::Half || type == dnn::BFloat16;
}

struct Problem {
  Tensor x, y;
  Filter w;
  Convolution conv;

  bool fits() const {
    int rank = conv.rank;
    bool ok = x.rank == rank + 2 && y.rank == rank + 2 && w.rank == rank + 2 && w.format == ChannelsLast &&
              conv.mode == dnn::CrossCorrelation && conv.compute == dnn::Float && x.type == y.type &&
              x.type == w.type && x.extents[0] == y.extents[0] && w.extents[0] == y.extents[1] &&
              w.extents[1] * conv.groups == x.extents[1];
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

/// cuDNN on a stream; one thread at a time may use it.
struct DnnHandle {
  cu::Stream stream = nullptr;
  std::atomic<bool> busy{false};
};

} // namespace standin

#endif
