// SPDX-License-Identifier: Apache-2.0
// Convolutions over few positions. oneDNN reorders the weights at every call, which costs more than such a convolution;
// here the small matrix of columns is brought into the weights' order instead.
#include "cpu/Gemm.h"

#include "core/Context.h"
#include "core/Error.h"
#include "core/Types.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

struct Columns {
  const mpt_conv_desc *conv;
  const char *image; // gathered from (forward)
  char *columns;
  int64_t taps, size;       // size: bytes of an element of the image
  const float *sums, *bias; // backward data: the GEMM, in FP32
  char *out;
  int64_t first = 0; // the output position of the first row
};

/// The three coordinates of a flat position.
struct Position {
  int64_t n, at[3];
  Position(int64_t flat, const int64_t (&extent)[3]) {
    at[2] = flat % extent[2];
    at[1] = flat / extent[2] % extent[1];
    at[0] = flat / extent[2] / extent[1] % extent[0];
    n = flat / extent[2] / extent[1] / extent[0];
  }
  int64_t flat(const int64_t (&extent)[3]) const {
    return ((n * extent[0] + at[0]) * extent[1] + at[1]) * extent[2] + at[2];
  }
};

/// Where output position `out` reads the image at kernel position `tap`; false in the padding.
bool readsFrom(const mpt_conv_desc &d, const Position &out, int64_t tap, Position &in) {
  Position k(tap, d.kernel);
  for (int i = 0; i < 3; ++i) {
    in.at[i] = out.at[i] * d.stride[i] - d.pad_low[i] + k.at[i] * d.dilation[i];
    if (in.at[i] < 0 || in.at[i] >= d.in[i])
      return false;
  }
  in.n = out.n;
  return true;
}

/// The output position that reads `in` at kernel position `tap`; false where there is none.
bool readBy(const mpt_conv_desc &d, const Position &in, int64_t tap, Position &out) {
  Position k(tap, d.kernel);
  for (int i = 0; i < 3; ++i) {
    int64_t at = in.at[i] + d.pad_low[i] - k.at[i] * d.dilation[i];
    if (at < 0 || at % d.stride[i] || at / d.stride[i] >= d.out[i])
      return false;
    out.at[i] = at / d.stride[i];
  }
  out.n = in.n;
  return true;
}

template <typename T> void spread(const T *from, int64_t count, int64_t pitch, T *to) {
  for (int64_t c = 0; c < count; ++c)
    to[c * pitch] = from ? from[c] : T(0);
}

/// Rows [begin, end) of the matrix of columns.
void gatherColumns(void *const *args, int64_t begin, int64_t end) {
  auto &task = *static_cast<const Columns *>(args[0]);
  const mpt_conv_desc &d = *task.conv;
  for (int64_t r = begin; r < end; ++r) {
    Position out(task.first + r, d.out), in(0, d.in);
    char *row = task.columns + r * d.ic * task.taps * task.size;
    for (int64_t t = 0; t < task.taps; ++t) {
      bool inside = readsFrom(d, out, t, in);
      const char *from = inside ? task.image + in.flat(d.in) * d.ic * task.size : nullptr;
      if (inside && task.taps == 1)
        memcpy(row, from, static_cast<size_t>(d.ic * task.size));
      else if (task.size == 4)
        spread(reinterpret_cast<const float *>(from), d.ic, task.taps, reinterpret_cast<float *>(row) + t);
      else if (task.size == 2)
        spread(reinterpret_cast<const uint16_t *>(from), d.ic, task.taps, reinterpret_cast<uint16_t *>(row) + t);
      else
        spread(reinterpret_cast<const uint8_t *>(from), d.ic, task.taps, reinterpret_cast<uint8_t *>(row) + t);
    }
  }
}

/// Input positions [begin, end): the sum of the columns of every output position, in a fixed order.
void sumColumns(void *const *args, int64_t begin, int64_t end) {
  constexpr int64_t span = 512;
  auto &task = *static_cast<const Columns *>(args[0]);
  const mpt_conv_desc &d = *task.conv;
  float sum[span];
  for (int64_t r = begin; r < end; ++r) {
    Position in(r, d.in), out(0, d.out);
    for (int64_t c0 = 0; c0 < d.ic; c0 += span) {
      int64_t count = std::min(span, d.ic - c0);
      for (int64_t c = 0; c < count; ++c)
        sum[c] = task.bias ? task.bias[c0 + c] : 0;
      for (int64_t t = 0; t < task.taps; ++t)
        if (readBy(d, in, t, out)) {
          const float *from = task.sums + (out.flat(d.out) * d.ic + c0) * task.taps + t;
          for (int64_t c = 0; c < count; ++c)
            sum[c] += from[c * task.taps];
        }
      gemmKernels().narrow(d.x_type, sum, count, task.out + (r * d.ic + c0) * task.size);
    }
  }
}

} // namespace

int32_t mpt::rt::convByColumns(mpt_exec *exec, int64_t site, const mpt_conv_desc &d, const void *bias, void *x, void *w,
                               void *y) {
  bool forward = d.kind == MPT_CONV_FORWARD, weights = d.kind == MPT_CONV_BACKWARD_WEIGHTS;
  int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2], width = d.ic * taps;
  int64_t rows = d.n * d.out[0] * d.out[1] * d.out[2], size = sizeOf(d.x_type);
  int64_t bytes = rows * width * (forward || weights ? size : 4), biasBytes = (d.ic * 4 + 63) / 64 * 64;
  ScratchLease scratch(exec);
  auto *memory = static_cast<char *>(scratch.get(biasBytes + bytes));
  if (!memory)
    return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for %lld bytes of scratch", static_cast<long long>(bytes));
  char *columns = memory + biasBytes;
  Columns task{&d,   static_cast<const char *>(x),       columns, taps,
               size, reinterpret_cast<float *>(columns), nullptr, static_cast<char *>(x)};
  void *args[] = {&task};
  mpt_gemm_desc g{};
  g.m = rows, g.batch0 = g.batch1 = 1, g.alpha = 1;
  g.a_col = 1, g.b_type = d.w_type, g.d_col = 1;
  if (forward || weights)
    mpt_rt_parallel(exec, gatherColumns, args, rows, 1 + 16384 / width);
  if (weights) {
    g.m = d.oc, g.n = width, g.k = rows;
    g.a_type = d.y_type, g.a_row = 1, g.a_col = d.oc;
    g.b_type = d.x_type, g.b_row = width, g.b_col = 1;
    g.d_type = d.w_type, g.d_row = width;
    return mpt_rt_gemm(exec, site, &g, y, columns, nullptr, w);
  }
  if (forward) {
    g.n = d.oc, g.k = width;
    g.a_type = d.x_type, g.a_row = width;
    g.b_row = 1, g.b_col = width;
    g.d_type = d.y_type, g.d_row = d.oc;
    g.bias_type = d.bias_type;
    g.flags = d.flags | (d.bias_type ? MPT_GEMM_BIAS : 0);
    return mpt_rt_gemm(exec, site, &g, columns, w, bias, y);
  }
  g.n = width, g.k = d.oc;
  g.a_type = d.y_type, g.a_row = d.oc;
  g.b_row = width, g.b_col = 1;
  g.d_type = MPT_FLOAT32, g.d_row = width;
  if (int32_t status = mpt_rt_gemm(exec, site, &g, y, w, nullptr, columns))
    return status;
  if (d.bias_type) {
    auto *wide = reinterpret_cast<float *>(memory);
    gemmKernels().widen(d.bias_type, bias, d.ic, wide);
    task.bias = wide;
  }
  mpt_rt_parallel(exec, sumColumns, args, d.n * d.in[0] * d.in[1] * d.in[2], 1 + 16384 / width);
  return MPT_OK;
}

int32_t mpt::rt::weightsByColumns(mpt_exec *exec, const mpt_conv_desc &d, void *x, void *w, void *y) {
  const int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2], width = d.ic * taps, size = sizeOf(d.x_type);
  const int64_t positions = d.n * d.out[0] * d.out[1] * d.out[2], channels = d.oc / d.groups, inputs = width / d.groups;
  const int64_t most = std::clamp<int64_t>((4 << 20) / std::max<int64_t>(width * size, 1), 64, 1 << 16);
  const int64_t sumBytes = (d.oc * inputs * 4 + 63) / 64 * 64, bytes = std::min(positions, most) * width * size;
  ScratchLease scratch(exec);
  auto *memory = static_cast<char *>(scratch.get(sumBytes + bytes + 64));
  if (!memory)
    return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for %lld bytes of scratch",
                static_cast<long long>(sumBytes + bytes));
  auto *sums = reinterpret_cast<float *>(memory);
  char *columns = memory + sumBytes;
  std::fill_n(sums, d.oc * inputs, 0.0F);
  mpt_gemm_desc g{};
  g.m = channels, g.n = inputs, g.batch0 = g.batch1 = 1, g.alpha = 1;
  g.a_type = d.y_type, g.a_row = 1, g.a_col = d.oc;
  g.b_type = d.x_type, g.b_row = width, g.b_col = 1;
  g.d_type = MPT_FLOAT32, g.d_row = inputs, g.d_col = 1;
  g.flags = MPT_GEMM_ACCUMULATE;
  Columns task{&d, static_cast<const char *>(x), columns, taps, size, nullptr, nullptr, nullptr};
  void *args[] = {&task};
  for (; task.first < positions; task.first += most) {
    g.k = std::min(most, positions - task.first);
    mpt_rt_parallel(exec, gatherColumns, args, g.k, 1 + 16384 / width);
    for (int64_t i = 0; i < d.groups; ++i) {
      const char *from = static_cast<const char *>(y) + (task.first * d.oc + i * channels) * sizeOf(d.y_type);
      if (int32_t status =
              runOwnGemm(exec, g, from, columns + i * inputs * size, nullptr, sums + i * channels * inputs))
        return status;
    }
  }
  gemmKernels().narrow(d.w_type, sums, d.oc * inputs, w);
  return MPT_OK;
}
