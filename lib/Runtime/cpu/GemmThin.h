// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: results of few columns. Register tiles of NR columns would be mostly empty, so that the vectors run
// along k: A is read where it lies, B is widened into rows along k, and the lanes of each sum are added at the end.

namespace {

constexpr int thinGroup = 5;

/// True for GEMMs that thinGemm computes. Depends on the whole GEMM alone, so that every split gives equal bits.
inline bool isThin(const mpt_gemm_desc &g, const Gather *gather) {
  int64_t depth = (g.k + W - 1) / W * W;
  return g.n <= thinCols && g.a_col == 1 && g.k >= 4 * W && depth * g.n <= floatsB && !gather;
}

inline float sumLanes(Vec v) {
  float lanes[W];
  v.store(lanes);
  for (int half = W / 2; half; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] += lanes[i + half];
  return lanes[0];
}

/// c (R x C, pitch NR) = a * b, with rows of A of pitch `row` and columns of B, along k, of pitch `depth`.
template <int R, int C, typename T>
void thinTile(const T *a, int64_t row, const float *b, int64_t depth, int64_t k, float *c) {
  Vec acc[R][C];
  for (auto &line : acc)
    for (Vec &v : line)
      v = Vec::zero();
  auto step = [&](const Vec(&x)[R], int64_t p) __attribute__((always_inline)) {
    for (int j = 0; j < C; ++j) {
      Vec y = Vec::load(b + j * depth + p);
      for (int i = 0; i < R; ++i)
        acc[i][j] = Vec::fma(x[i], y, acc[i][j]);
    }
  };
  int64_t p = 0;
  Vec x[R];
  for (; p + W <= k; p += W) {
    for (int i = 0; i < R; ++i)
      x[i] = loadAs(a + i * row + p);
    step(x, p);
  }
  if (p < k) {
    for (int i = 0; i < R; ++i)
      x[i] = loadPart(a + i * row + p, k - p);
    step(x, p);
  }
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < C; ++j)
      c[i * NR + j] = sumLanes(acc[i][j]);
}

template <int C, typename T>
void thinRows(const T *a, int64_t row, int64_t rows, const float *b, int64_t depth, int64_t k, float *c) {
  constexpr int R = C >= 4 ? 2 : 4;
  int64_t i = 0;
  for (; i + R <= rows; i += R)
    thinTile<R, C>(a + i * row, row, b, depth, k, c + i * NR);
  for (; i < rows; ++i)
    thinTile<1, C>(a + i * row, row, b, depth, k, c + i * NR);
}

/// c (rows x n, pitch NR) = a * b.
template <typename T>
void thinGemm(const void *from, int64_t row, int64_t rows, const float *b, int64_t depth, int64_t k, int64_t n,
              float *c) {
  auto *a = static_cast<const T *>(from);
  for (int64_t j = 0; j < n;) {
    // Groups of columns as even as possible.
    int64_t groups = (n - j + thinGroup - 1) / thinGroup, cols = (n - j + groups - 1) / groups;
    const float *to = b + j * depth;
    switch (cols) {
    case 1:
      thinRows<1>(a, row, rows, to, depth, k, c + j);
      break;
    case 2:
      thinRows<2>(a, row, rows, to, depth, k, c + j);
      break;
    case 3:
      thinRows<3>(a, row, rows, to, depth, k, c + j);
      break;
    case 4:
      thinRows<4>(a, row, rows, to, depth, k, c + j);
      break;
    default:
      thinRows<5>(a, row, rows, to, depth, k, c + j);
    }
    j += cols;
  }
}

/// Columns of B as rows of `depth` floats, zero from k on.
template <typename T> void thinColumns(const void *from, int64_t row, int64_t col, int64_t k, int64_t n, float *out) {
  auto *b = static_cast<const T *>(from);
  int64_t depth = (k + W - 1) / W * W;
  for (int64_t j = 0; j < n; ++j, b += col, out += depth) {
    if (row == 1)
      widenRun(b, k, out);
    else
      for (int64_t p = 0; p < k; ++p)
        out[p] = widen(b[p * row]);
    for (int64_t p = k; p < depth; ++p)
      out[p] = 0;
  }
}

} // namespace
