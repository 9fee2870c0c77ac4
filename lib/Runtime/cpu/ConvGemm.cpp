// SPDX-License-Identifier: Apache-2.0
// Convolutions that our GEMM computes in the types as stored: 1 x 1 ones, which are plain GEMMs; gradients of
// weights, where oneDNN's AVX2 kernels reach half the rate of its forward pass; ones whose sums are in two chains, in
// matrix tiles; and ones with few positions (ConvColumns.cpp).
#include "cpu/Gemm.h"

#include "core/Context.h"
#include "core/Error.h"
#include "core/Types.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

mpt_gemm_desc gemmOf(int64_t m, int64_t n, int64_t k) {
  mpt_gemm_desc g{};
  g.m = m, g.n = n, g.k = k;
  g.batch0 = g.batch1 = 1;
  g.alpha = 1;
  g.d_row = n, g.d_col = 1;
  return g;
}

int32_t runPointwise(mpt_exec *exec, int64_t site, const mpt_conv_desc &d, const void *bias, void *x, void *w,
                     void *y) {
  int64_t rows = d.n * d.out[0] * d.out[1] * d.out[2];
  mpt_gemm_desc g;
  if (d.kind == MPT_CONV_BACKWARD_WEIGHTS) {
    g = gemmOf(d.oc, d.ic, rows);
    g.a_type = d.y_type, g.a_row = 1, g.a_col = d.oc;
    g.b_type = d.x_type, g.b_row = d.ic, g.b_col = 1;
    g.d_type = d.w_type;
    return mpt_rt_gemm(exec, site, &g, y, x, nullptr, w);
  }
  bool forward = d.kind == MPT_CONV_FORWARD;
  g = forward ? gemmOf(rows, d.oc, d.ic) : gemmOf(rows, d.ic, d.oc);
  g.a_type = forward ? d.x_type : d.y_type, g.a_row = g.k, g.a_col = 1;
  g.b_type = d.w_type, g.b_row = forward ? 1 : d.ic, g.b_col = forward ? d.ic : 1;
  g.d_type = forward ? d.y_type : d.x_type;
  g.bias_type = d.bias_type;
  g.flags = d.flags | (d.bias_type ? MPT_GEMM_BIAS : 0);
  return mpt_rt_gemm(exec, site, &g, forward ? x : y, w, bias, forward ? y : x);
}

struct Reorder {
  const float *from; // [oc][tap][ic]
  void *to;          // [oc][ic][tap]
  int64_t taps, ic, type;
};

void reorder(void *const *args, int64_t begin, int64_t end) {
  auto &r = *static_cast<const Reorder *>(args[0]);
  float run[256];
  for (int64_t oc = begin; oc < end; ++oc) {
    const float *from = r.from + oc * r.taps * r.ic;
    char *to = static_cast<char *>(r.to) + oc * r.taps * r.ic * sizeOf(r.type);
    int64_t filled = 0;
    for (int64_t c = 0; c < r.ic; ++c)
      for (int64_t t = 0; t < r.taps; ++t) {
        run[filled++] = from[t * r.ic + c];
        if (filled == 256 || (c + 1 == r.ic && t + 1 == r.taps)) {
          gemmKernels().narrow(r.type, run, filled, to);
          to += filled * sizeOf(r.type);
          filled = 0;
        }
      }
  }
}

int32_t runWeights(mpt_exec *exec, const mpt_conv_desc &d, void *x, void *w, void *y) {
  int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2], bytes = d.oc * taps * d.ic * 4;
  ScratchLease scratch(exec);
  auto *sums = static_cast<float *>(scratch.get(bytes));
  if (!sums)
    return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for %lld bytes of scratch", static_cast<long long>(bytes));
  mpt_gemm_desc g = gemmOf(d.oc, taps * d.ic, d.n * d.out[0] * d.out[1] * d.out[2]);
  g.a_type = d.y_type, g.a_row = 1, g.a_col = d.oc;
  g.b_type = d.x_type, g.b_row = g.n, g.b_col = 1;
  g.d_type = MPT_FLOAT32;
  Gather gather{d.ic, &d};
  if (int32_t status = runOwnGemm(exec, g, y, x, nullptr, sums, &gather))
    return status;
  Reorder order{sums, w, taps, d.ic, d.w_type};
  void *args[] = {&order};
  mpt_rt_parallel(exec, reorder, args, d.oc, 1 + (1 << 14) / (taps * d.ic));
  return MPT_OK;
}

using Eight __attribute__((vector_size(16))) = uint16_t;

/// Row i takes element i of each row.
void transpose(Eight (&r)[8]) {
  Eight s[8], t[8];
  for (int i = 0; i < 4; ++i) {
    s[2 * i] = __builtin_shufflevector(r[i], r[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    s[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = __builtin_shufflevector(s[i], s[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    t[2 * i + 1] = __builtin_shufflevector(s[i], s[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = __builtin_shufflevector(t[i], t[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    r[2 * i + 1] = __builtin_shufflevector(t[i], t[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
}

/// A filter [ic][tap] as [tap][ic]; ic is a multiple of 8.
void turn(const uint16_t *from, int64_t ic, int64_t taps, uint16_t *to) {
  int64_t t = 0;
  for (; t + 8 <= taps; t += 8)
    for (int64_t c = 0; c < ic; c += 8) {
      Eight rows[8];
      for (int64_t i = 0; i < 8; ++i)
        memcpy(&rows[i], from + (c + i) * taps + t, sizeof rows[i]);
      transpose(rows);
      for (int64_t i = 0; i < 8; ++i)
        memcpy(to + (t + i) * ic + c, &rows[i], sizeof rows[i]);
    }
  for (; t < taps; ++t)
    for (int64_t c = 0; c < ic; ++c)
      to[t * ic + c] = from[c * taps + t];
}

struct Filters {
  const uint16_t *from;
  uint16_t *to;
  int64_t ic, taps;
};

/// Forward, of one group: a row of A is a window, kernel position by kernel position. Filters are turned to that order
/// some at a time, as the second cache holds them.
int32_t runInTiles(mpt_exec *exec, const mpt_conv_desc &d, const void *bias, const void *x, const void *w, void *y) {
  const int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2], depth = taps * d.ic;
  const int64_t most = taps == 1 ? d.oc : std::max<int64_t>(64, (1 << 18) / depth / 32 * 32), bytes = most * depth * 2;
  ScratchLease scratch(exec);
  Filters filters{static_cast<const uint16_t *>(w), nullptr, d.ic, taps};
  if (taps > 1)
    if (filters.to = static_cast<uint16_t *>(scratch.get(bytes)); !filters.to)
      return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for %lld bytes of scratch", static_cast<long long>(bytes));
  mpt_gemm_desc g = gemmOf(d.n * d.out[0] * d.out[1] * d.out[2], 0, depth);
  g.a_type = d.x_type, g.a_col = 1;
  g.b_type = d.w_type, g.b_row = 1, g.b_col = depth;
  g.d_type = d.y_type, g.d_row = d.oc;
  g.bias_type = d.bias_type;
  g.flags = d.flags | (d.bias_type ? MPT_GEMM_BIAS : 0);
  const Gather gather{d.ic, &d, true};
  for (int64_t first = 0; first < d.oc; first += most) {
    g.n = std::min(most, d.oc - first);
    filters.from = static_cast<const uint16_t *>(w) + first * depth;
    void *args[] = {&filters};
    if (taps > 1)
      mpt_rt_parallel(
          exec,
          [](void *const *args, int64_t begin, int64_t end) {
            auto &f = *static_cast<const Filters *>(args[0]);
            for (int64_t i = begin * f.taps * f.ic, e = end * f.taps * f.ic; i < e; i += f.taps * f.ic)
              turn(f.from + i, f.ic, f.taps, f.to + i);
          },
          args, g.n, 1 + (1 << 15) / depth);
    const void *of = taps > 1 ? filters.to : filters.from;
    const auto *biases = static_cast<const char *>(bias);
    if (int32_t status = runOwnGemm(exec, g, x, of, biases ? biases + first * sizeOf(d.bias_type) : nullptr,
                                    static_cast<char *>(y) + first * sizeOf(d.y_type), &gather))
      return status;
  }
  return MPT_OK;
}

} // namespace

bool mpt::rt::convByGemm(mpt_exec *exec, int64_t site, const mpt_conv_desc &d, const void *bias, void *x, void *w,
                         void *y, int32_t &status) {
  bool sameType = d.x_type == d.w_type && d.x_type == d.y_type;
  if (d.flags & MPT_GEMM_ORDERED && d.kind != MPT_CONV_BACKWARD_WEIGHTS) {
    if (d.groups == 1 && mpt_conv_is_pointwise(&d))
      status = runPointwise(exec, site, d, bias, x, w, y);
    else if (d.flags & MPT_GEMM_TWO_CHAINS && hasTiles())
      status = runInTiles(exec, d, bias, x, w, y);
    else
      status = convOwn(exec, d, bias, x, w, y);
    return true;
  }
  if (!mpt_conv_is_gemm(&d) || (sameType && d.x_type == MPT_BFLOAT16 && oneDnnNative(MPT_BFLOAT16)))
    return false;
  if (mpt_conv_is_pointwise(&d))
    status = runPointwise(exec, site, d, bias, x, w, y);
  else if (mpt_conv_by_columns(&d))
    status = convByColumns(exec, site, d, bias, x, w, y);
  else if (d.ic % gemmKernels().nr == 0 &&
           !(sameType && oneDnnNative(d.x_type) && gemmKernels().nr == 32)) // as fast in oneDNN with AVX-512
    status = runWeights(exec, d, x, w, y);
  else
    return false;
  return true;
}
