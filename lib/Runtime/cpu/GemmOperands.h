// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: functions by an operand's type.

namespace {

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

template <typename T> constexpr bool isResult = true;
template <typename T> constexpr bool isResult<Rounded<T>> = false;

/// The functions for an operand's type. Without packing, it is a type of results alone.
struct Operand {
  int64_t size;
  void (*packRowsA)(const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*packPanelsA)(const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*packRowsB)(const void *, int64_t, int64_t, int64_t, float *);
  void (*packColumnsB)(const void *, int64_t, int64_t, int64_t, float *);
  void (*packGatherA)(const Gather &, const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*packGatherB)(const Gather &, const void *, int64_t, int64_t, int64_t, int64_t, float *);
  TileFn (*unpackedTile)(bool rowsA, int64_t rows); // reads B in place; null: pack it always
  TileFn (*unpackedInTwoChains)(bool rowsA, int64_t rows);
  FinishFn finish;
  LastFn lastTile[2][2]; // of this output type, by twoChains and rowsA
  // For results of few columns.
  void (*thinColumns)(const void *, int64_t, int64_t, int64_t, int64_t, float *);
  void (*thinGemm)(const void *, int64_t, int64_t, const float *, int64_t, int64_t, int64_t, float *);
  void (*widen)(const void *in, int64_t n, float *out);
  void (*narrow)(const float *in, int64_t n, void *out);
};

template <typename T> constexpr Operand operandOf() {
  Operand result{};
  result.size = sizeof(T);
  if constexpr (isPacked<T>) {
    result.packRowsA = packRowsA<T>;
    result.packPanelsA = packPanelsA<T>;
    result.packRowsB = packRowsB<T>;
    result.packColumnsB = packColumnsB<T>;
  }
  if constexpr (perLane == 1) { // packed and unpacked operands have the same lanes
    result.packGatherB = packGatherB<T>;
    result.unpackedTile = sizeof(T) > 1 ? anyTile<T> : nullptr;
    // The types of sums in two chains.
    if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, Rounded<BF16>>)
      result.unpackedInTwoChains = anyTile<T, true>;
  }
  if constexpr (perLane > 1 && std::is_same_v<T, BF16>)
    result.packGatherA = packGatherA<T>;
  if constexpr (isResult<T>) {
    result.finish = finishTile<T>;
    result.lastTile[false][false] = lastTile<false, false, T>;
    result.lastTile[false][true] = lastTile<true, false, T>;
    result.lastTile[true][false] = lastTile<false, true, T>;
    result.lastTile[true][true] = lastTile<true, true, T>;
    result.narrow = narrowTo<T>;
  }
  result.thinColumns = thinColumns<T>;
  result.thinGemm = thinGemm<T>;
  result.widen = widenFrom<T>;
  return result;
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

/// An operand of `g` in memory of type `dtype`.
const Operand &input(const mpt_gemm_desc &g, int64_t dtype) {
  static const Operand f16 = operandOf<Rounded<F16>>(), bf16 = operandOf<Rounded<BF16>>();
  if (dtype == MPT_FLOAT32 && g.flags & readFlags)
    return g.flags & MPT_GEMM_READ_F16 ? f16 : bf16;
  return operand(dtype);
}

void widenArray(int64_t dtype, const void *in, int64_t n, float *out) { operand(dtype).widen(in, n, out); }
void narrowArray(int64_t dtype, const float *in, int64_t n, void *out) { operand(dtype).narrow(in, n, out); }

void multiplyAddArrays(const float *a, const float *b, int64_t n, float *c) {
  int64_t i = 0;
  for (; i + W <= n; i += W)
    Vec::fma(Vec::load(a + i), Vec::load(b + i), Vec::load(c + i)).store(c + i);
  if (i == n)
    return;
  float wide[W];
  Vec::fma(loadPart(a + i, n - i), loadPart(b + i, n - i), loadPart(c + i, n - i)).store(wide);
  memcpy(c + i, wide, static_cast<size_t>(n - i) * sizeof(float));
}

/// A GEMM of few columns; see GemmThin.h. All of them are in the task.
void runThin(const GemmTask &task, float *columns, float *sums, const Epilogue &e) {
  const mpt_gemm_desc &g = *task.desc;
  const Operand &opA = input(g, g.a_type), &opD = operand(g.d_type);
  input(g, g.b_type).thinColumns(task.b, g.b_row, g.b_col, g.k, g.n, columns);
  int64_t depth = (g.k + W - 1) / W * W;
  for (int64_t i = task.m0; i < task.m1; i += rowsMax) {
    int64_t rows = task.m1 - i < rowsMax ? task.m1 - i : rowsMax;
    opA.thinGemm(static_cast<const char *>(task.a) + i * g.a_row * opA.size, g.a_row, rows, columns, depth, g.k, g.n,
                 sums);
    opD.finish(sums, NR, static_cast<char *>(task.d) + i * g.d_row * opD.size, g.d_row, rows, g.n, e, 0);
  }
}

} // namespace
