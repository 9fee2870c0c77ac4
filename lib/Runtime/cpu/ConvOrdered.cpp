// SPDX-License-Identifier: Apache-2.0
// Convolutions with MPT_GEMM_ORDERED: GEMMs whose sums run over input channels, then kernel positions, whatever the
// batch. Channel by channel where each has a filter of its own; group by group, on copies, where there are groups.
#include "cpu/Gemm.h"

#include "core/Context.h"
#include "core/Error.h"
#include "core/Types.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

int64_t volume(const int64_t (&extent)[3]) { return extent[0] * extent[1] * extent[2]; }
int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int32_t noMemory() { return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for its scratch"); }

/// x in FP32, in `memory` where it is narrow.
const float *widened(mpt_exec *exec, const mpt_conv_desc &d, const void *x, float *memory) {
  if (d.x_type == MPT_FLOAT32)
    return static_cast<const float *>(x);
  struct Copy {
    int64_t type;
    const char *in;
    float *out;
  } copy{d.x_type, static_cast<const char *>(x), memory};
  void *args[] = {&copy};
  mpt_rt_parallel(
      exec,
      [](void *const *args, int64_t begin, int64_t end) {
        auto &copy = *static_cast<Copy *>(args[0]);
        gemmKernels().widen(copy.type, copy.in + begin * sizeOf(copy.type), end - begin, copy.out + begin);
      },
      args, d.n * d.ic * volume(d.in), 1 << 15);
  return memory;
}

/// Every channel by its own filter: the vectors run along channels.
struct Channels {
  const mpt_conv_desc *conv;
  const float *x, *w, *bias; // w: [tap][channel]
  char *y;
};

void runChannels(void *const *args, int64_t begin, int64_t end) {
  constexpr int64_t span = 512;
  auto &task = *static_cast<const Channels *>(args[0]);
  const mpt_conv_desc &d = *task.conv;
  const GemmKernels &kernels = gemmKernels();
  float sum[span];
  for (int64_t row = begin; row < end; ++row) {
    int64_t o2 = row % d.out[2], o1 = row / d.out[2] % d.out[1], o0 = row / d.out[2] / d.out[1] % d.out[0],
            n = row / d.out[2] / d.out[1] / d.out[0];
    for (int64_t c = 0; c < d.oc; c += span) {
      const int64_t count = std::min(span, d.oc - c);
      std::fill_n(sum, count, 0.0F);
      for (int64_t t = 0; t < volume(d.kernel); ++t) {
        int64_t x0 = o0 * d.stride[0] - d.pad_low[0] + t / d.kernel[2] / d.kernel[1] * d.dilation[0],
                x1 = o1 * d.stride[1] - d.pad_low[1] + t / d.kernel[2] % d.kernel[1] * d.dilation[1],
                x2 = o2 * d.stride[2] - d.pad_low[2] + t % d.kernel[2] * d.dilation[2];
        if (x0 >= 0 && x0 < d.in[0] && x1 >= 0 && x1 < d.in[1] && x2 >= 0 && x2 < d.in[2])
          kernels.multiplyAdd(task.x + (((n * d.in[0] + x0) * d.in[1] + x1) * d.in[2] + x2) * d.ic + c,
                              task.w + t * d.oc + c, count, sum);
      }
      for (int64_t i = 0; i < count; ++i) {
        float value = task.bias ? sum[i] + task.bias[c + i] : sum[i];
        sum[i] = d.flags & MPT_GEMM_RELU && value < 0 ? 0 : value;
      }
      kernels.narrow(d.y_type, sum, count, task.y + (row * d.oc + c) * sizeOf(d.y_type));
    }
  }
}

int32_t byChannels(mpt_exec *exec, const mpt_conv_desc &d, const void *bias, const void *x, const void *w, void *y) {
  const int64_t taps = volume(d.kernel), xs = d.n * d.ic * volume(d.in), ws = taps * d.oc;
  ScratchLease scratch(exec);
  auto *memory = static_cast<float *>(scratch.get(rounded(xs * 4) + rounded(2 * ws * 4) + d.oc * 4));
  if (!memory)
    return noMemory();
  float *filters = memory + rounded(xs * 4) / 4, *stored = filters + ws, *wide = filters + rounded(2 * ws * 4) / 4;
  gemmKernels().widen(d.w_type, w, ws, stored);
  for (int64_t c = 0; c < d.oc; ++c)
    for (int64_t t = 0; t < taps; ++t)
      filters[t * d.oc + c] = stored[c * taps + t];
  if (d.bias_type)
    gemmKernels().widen(d.bias_type, bias, d.oc, wide);
  Channels task{&d, widened(exec, d, x, memory), filters, d.bias_type ? wide : nullptr, static_cast<char *>(y)};
  void *args[] = {&task};
  mpt_rt_parallel(exec, runChannels, args, d.n * volume(d.out), 1 + 16384 / (taps * d.oc));
  return MPT_OK;
}

/// Channels [first, first + count) of `rows` positions, out of or into a copy of their own.
void copyChannels(bool out, int64_t rows, int64_t channels, int64_t first, int64_t count, int64_t size, char *whole,
                  char *copy) {
  for (int64_t r = 0; r < rows; ++r) {
    char *part = whole + (r * channels + first) * size, *own = copy + r * count * size;
    memcpy(out ? own : part, out ? part : own, static_cast<size_t>(count * size));
  }
}

int32_t byGroups(mpt_exec *exec, int64_t site, const mpt_conv_desc &d, const void *bias, void *x, void *w, void *y) {
  mpt_conv_desc one = d;
  one.groups = 1, one.ic = d.ic / d.groups, one.oc = d.oc / d.groups;
  const bool forward = d.kind == MPT_CONV_FORWARD;
  const int64_t xRows = d.n * volume(d.in), yRows = d.n * volume(d.out), xSize = sizeOf(d.x_type),
                ySize = sizeOf(d.y_type), channels = forward ? one.oc : one.ic;
  ScratchLease scratch(exec);
  auto *ownX = static_cast<char *>(scratch.get(rounded(xRows * one.ic * xSize) + yRows * one.oc * ySize));
  if (!ownX)
    return noMemory();
  char *ownY = ownX + rounded(xRows * one.ic * xSize);
  for (int64_t g = 0; g < d.groups; ++g) {
    copyChannels(true, xRows, d.ic, g * one.ic, one.ic, xSize, static_cast<char *>(x), ownX);
    copyChannels(true, yRows, d.oc, g * one.oc, one.oc, ySize, static_cast<char *>(y), ownY);
    char *filters = static_cast<char *>(w) + g * one.oc * one.ic * volume(d.kernel) * sizeOf(d.w_type);
    const char *shifts = d.bias_type ? static_cast<const char *>(bias) + g * channels * sizeOf(d.bias_type) : nullptr;
    if (int32_t status = convOrdered(exec, site, one, shifts, ownX, filters, ownY))
      return status;
    if (forward)
      copyChannels(false, yRows, d.oc, g * one.oc, one.oc, ySize, static_cast<char *>(y), ownY);
    else
      copyChannels(false, xRows, d.ic, g * one.ic, one.ic, xSize, static_cast<char *>(x), ownX);
  }
  return MPT_OK;
}

} // namespace

int32_t mpt::rt::convOrdered(mpt_exec *exec, int64_t site, const mpt_conv_desc &d, const void *bias, void *x, void *w,
                             void *y) {
  const bool forward = d.kind == MPT_CONV_FORWARD;
  if (forward && d.groups > 1 && d.groups == d.ic && d.ic == d.oc)
    return byChannels(exec, d, bias, x, w, y);
  if (d.groups > 1)
    return byGroups(exec, site, d, bias, x, w, y);
  const int64_t taps = volume(d.kernel);
  if (!forward || mpt_conv_by_columns(&d) || taps > mostGatheredTaps)
    return convByColumns(exec, site, d, bias, x, w, y);
  ScratchLease scratch(exec);
  float *memory = nullptr;
  if (d.x_type != MPT_FLOAT32 && !(memory = static_cast<float *>(scratch.get(d.n * d.ic * volume(d.in) * 4))))
    return noMemory();
  mpt_gemm_desc g{};
  g.m = d.n * volume(d.out), g.n = d.oc, g.k = d.ic * taps;
  g.batch0 = g.batch1 = 1, g.alpha = 1;
  g.a_type = MPT_FLOAT32, g.a_row = g.k, g.a_col = 1;
  g.b_type = d.w_type, g.b_row = 1, g.b_col = g.k;
  g.d_type = d.y_type, g.d_row = d.oc, g.d_col = 1;
  g.bias_type = d.bias_type;
  g.flags = d.flags | (d.bias_type ? MPT_GEMM_BIAS : 0);
  Gather gather{d.ic, &d, /*isA=*/true};
  return runOwnGemm(exec, g, widened(exec, d, x, memory), w, bias, y, &gather);
}
