// SPDX-License-Identifier: Apache-2.0
// FP64 GEMMs: no packing, one row of sums at a time. They serve tests and double-precision models, not speed.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <algorithm>
#include <cmath>

namespace mpt::rt {

static double biasAt(const GemmTask &task, int64_t j) {
  switch (task.desc->bias_type) {
  case MPT_FLOAT64:
    return static_cast<const double *>(task.bias)[j];
  case MPT_FLOAT16:
    return fromF16(static_cast<const uint16_t *>(task.bias)[j]);
  case MPT_BFLOAT16:
    return fromBF16(static_cast<const uint16_t *>(task.bias)[j]);
  default:
    return static_cast<double>(static_cast<const float *>(task.bias)[j]);
  }
}

/// sum (of `cols` columns from j0) = row i of A times B.
static void sumRow(const GemmTask &task, int64_t i, int64_t j0, int64_t cols, double *sum) {
  const mpt_gemm_desc &g = *task.desc;
  auto *a = static_cast<const double *>(task.a), *b = static_cast<const double *>(task.b);
  std::fill_n(sum, cols, 0.0);
  for (int64_t p = 0; p < g.k; ++p) {
    double x = a[i * g.a_row + p * g.a_col];
    const double *row = b + p * g.b_row + j0 * g.b_col;
    if (g.b_col == 1)
      for (int64_t j = 0; j < cols; ++j)
        sum[j] += x * row[j];
    else
      for (int64_t j = 0; j < cols; ++j)
        sum[j] += x * row[j * g.b_col];
  }
}

/// What the epilogue makes of the sum of column j.
static double finish(const GemmTask &task, int64_t j, double sum) {
  const mpt_gemm_desc &g = *task.desc;
  double x = g.alpha * sum;
  if (g.flags & MPT_GEMM_BIAS)
    x += biasAt(task, j);
  if (g.flags & MPT_GEMM_RELU)
    x = x < 0 ? 0 : x;
  if (g.flags & MPT_GEMM_GELU_ERF)
    x = 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
  if (g.flags & MPT_GEMM_GELU_TANH)
    x = 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
  return x;
}

void gemmF64(const GemmTask &task) {
  constexpr int64_t span = 512;
  const mpt_gemm_desc &g = *task.desc;
  auto *d = static_cast<double *>(task.d);
  double sum[span];
  for (int64_t j0 = task.n0; j0 < task.n1; j0 += span) {
    int64_t cols = std::min(span, task.n1 - j0);
    for (int64_t i = task.m0; i < task.m1; ++i) {
      sumRow(task, i, j0, cols, sum);
      for (int64_t j = 0; j < cols; ++j) {
        double x = finish(task, j0 + j, sum[j]), &out = d[i * g.d_row + j0 + j];
        out = g.flags & MPT_GEMM_ACCUMULATE ? out + x : x;
      }
    }
  }
}

} // namespace mpt::rt
