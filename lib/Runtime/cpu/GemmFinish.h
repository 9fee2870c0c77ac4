// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: the epilogue.

namespace {

inline float gelu(float x, int64_t flags) {
  if (flags & MPT_GEMM_GELU_ERF)
    return 0.5f * x * (1 + erff(x * 0.70710678f));
  return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

struct Epilogue {
  int64_t flags;
  float alpha;
  const float *bias; // of the block's first column, or null
};

template <typename T> inline Vec roundAs(Vec x, bool round) {
  if (sizeof(T) == sizeof(float) || !round)
    return x;
  T narrow[W];
  storeAs(x, narrow);
  return loadAs(narrow);
}

template <typename T> inline Vec finish(Vec x, const Epilogue &e, int64_t column) {
  bool round = e.flags & MPT_GEMM_ROUND;
  x = roundAs<T>(Vec::mul(x, Vec::set(e.alpha)), round);
  if (e.bias)
    x = roundAs<T>(Vec::add(x, Vec::load(e.bias + column)), round);
  if (e.flags & MPT_GEMM_RELU)
    x = Vec::relu(x);
  if (e.flags & (MPT_GEMM_GELU_ERF | MPT_GEMM_GELU_TANH)) {
    float wide[W];
    x.store(wide);
    for (int i = 0; i < W; ++i)
      wide[i] = gelu(wide[i], e.flags);
    x = Vec::load(wide);
  }
  return x;
}

/// The bias of columns [j0, j0 + cols) in FP32, zero up to a multiple of NR.
void widenBias(const GemmTask &task, int64_t j0, int64_t cols, float *out) {
  for (int64_t j = 0; j < (cols + NR - 1) / NR * NR; ++j) {
    out[j] = 0;
    if (j >= cols)
      continue;
    if (task.desc->bias_type == MPT_FLOAT16)
      out[j] = fromF16(static_cast<const uint16_t *>(task.bias)[j0 + j]);
    else if (task.desc->bias_type == MPT_BFLOAT16)
      out[j] = fromBF16(static_cast<const uint16_t *>(task.bias)[j0 + j]);
    else
      out[j] = static_cast<const float *>(task.bias)[j0 + j];
  }
}

/// Rounds a tile of sums into d. `column` counts from the block's first column, where the bias starts.
template <typename T>
void finishTile(const float *c, int64_t ldc, void *to, int64_t ldd, int64_t rows, int64_t cols, const Epilogue &e,
                int64_t column) {
  auto *d = static_cast<T *>(to);
  bool accumulate = e.flags & MPT_GEMM_ACCUMULATE;
  for (int64_t i = 0; i < rows; ++i, c += ldc, d += ldd) {
    int64_t j = 0;
    for (; j + W <= cols; j += W) {
      Vec x = finish<T>(Vec::load(c + j), e, column + j);
      storeAs(accumulate ? Vec::add(loadAs(d + j), x) : x, d + j);
    }
    if (j < cols) {
      Vec x = finish<T>(Vec::load(c + j), e, column + j);
      if (accumulate)
        x = Vec::add(loadPart(d + j, cols - j), x);
      float wide[W];
      x.store(wide);
      for (int64_t q = 0; q < cols - j; ++q)
        narrow(wide[q], d[j + q]);
    }
  }
}

} // namespace
