// The packed GEMM: the epilogue, and what depends on an operand's type.

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

using FinishFn = void (*)(const float *, int64_t, void *, int64_t, int64_t, int64_t, const Epilogue &, int64_t);

template <typename T> void widenFrom(const void *in, int64_t n, float *out) {
  widenRun(static_cast<const T *>(in), n, out);
}

template <typename T> void narrowTo(const float *in, int64_t n, void *to) {
  auto *out = static_cast<T *>(to);
  int64_t i = 0;
  for (; i + W <= n; i += W)
    storeAs(Vec::load(in + i), out + i);
  for (; i < n; ++i)
    narrow(in[i], out[i]);
}

/// What depends on an operand's type.
struct Operand {
  int64_t size;
  void (*packRowsA)(const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*packPanelsA)(const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*packRowsB)(const void *, int64_t, int64_t, int64_t, float *);
  void (*packColumnsB)(const void *, int64_t, int64_t, int64_t, float *);
  void (*packGather)(const Gather &, const void *, int64_t, int64_t, int64_t, int64_t, float *);
  TileFn (*unpackedTile)(bool rowsA, int64_t rows); // reads B in place; null: pack it always
  FinishFn finish;
  LastFn lastTile[2]; // of this output type, by rowsA
  // For results of few columns.
  void (*thinColumns)(const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*thinProduct)(const void *, int64_t, int64_t, const float *, int64_t, int64_t, int64_t, float *);
  void (*widen)(const void *in, int64_t n, float *out);
  void (*narrow)(const float *in, int64_t n, void *out);
};

template <typename T> TileFn anyTile(bool rowsA, int64_t rows) {
  if (rows == MR)
    return rowsA ? tileEntry<MR, true, T> : tileEntry<MR, false, T>;
  return rowsA ? tileFor<true, T>(rows) : tileFor<false, T>(rows);
}

template <typename T> constexpr Operand operandOf() {
  return {sizeof(T),
          packRowsA<T>,
          packPanelsA<T>,
          packRowsB<T>,
          packColumnsB<T>,
          packGatherB<T>,
          sizeof(T) > 1 ? anyTile<T> : nullptr,
          finishTile<T>,
          {lastTile<false, T>, lastTile<true, T>},
          thinColumns<T>,
          thinProduct<T>,
          widenFrom<T>,
          narrowTo<T>};
}

const Operand &operand(int64_t dtype) {
  static const Operand f32 = operandOf<float>(), f16 = operandOf<F16>(), bf16 = operandOf<BF16>(),
                       e4m3 = operandOf<E4M3>(), e5m2 = operandOf<E5M2>();
  switch (dtype) {
  case MPT_FLOAT16:
    return f16;
  case MPT_BFLOAT16:
    return bf16;
  case MPT_FLOAT8E4M3FN:
    return e4m3;
  case MPT_FLOAT8E5M2:
    return e5m2;
  default:
    return f32;
  }
}

void widenArray(int64_t dtype, const void *in, int64_t n, float *out) { operand(dtype).widen(in, n, out); }
void narrowArray(int64_t dtype, const float *in, int64_t n, void *out) { operand(dtype).narrow(in, n, out); }

} // namespace
