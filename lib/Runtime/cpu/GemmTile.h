// The packed GEMM, part 2 of 4: the register tile.

namespace {

/// c (R x NR) = [c +] a * b. Element (i, p) of A is a[i * rs + p * cs]; with Rows, cs is 1; otherwise rs is 1, cs is
/// MR. Row p of B starts at b + p * ldb.
template <int R, bool Rows, typename T>
__attribute__((always_inline)) inline void tile(int64_t k, const float *a, const T *b, int64_t ldb, float *c,
                                                int64_t ldc, bool accumulate) {
  Vec acc[R][2];
  for (int i = 0; i < R; ++i)
    acc[i][0] = acc[i][1] = Vec::zero();
#pragma clang loop unroll_count(4)
  for (int64_t p = 0; p < k; ++p) {
    Vec b0 = loadAs(b), b1 = loadAs(b + W);
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) {
      Vec x = Vec::broadcast(Rows ? a + i * lead : a + i);
      acc[i][0] = Vec::fma(x, b0, acc[i][0]);
      acc[i][1] = Vec::fma(x, b1, acc[i][1]);
    }
    a += Rows ? 1 : MR;
    b += ldb;
  }
  for (int i = 0; i < R; ++i)
    for (int h = 0; h < 2; ++h) {
      float *p = c + i * ldc + h * W;
      (accumulate ? Vec::add(Vec::load(p), acc[i][h]) : acc[i][h]).store(p);
    }
}

using TileFn = void (*)(int64_t k, const float *a, const void *b, int64_t ldb, float *c, int64_t ldc, bool accumulate);

template <int R, bool Rows, typename T>
void tileEntry(int64_t k, const float *a, const void *b, int64_t ldb, float *c, int64_t ldc, bool accumulate) {
  tile<R, Rows>(k, a, static_cast<const T *>(b), ldb, c, ldc, accumulate);
}

/// The kernel for the last rows: the smallest of the instantiated heights that covers them.
template <bool Rows, typename T> TileFn tileFor(int64_t rows) {
  if (rows > (MR + 1) / 2 + MR / 6)
    return tileEntry<MR, Rows, T>;
  if (rows > MR / 3)
    return tileEntry<(MR + 1) / 2 + MR / 6, Rows, T>;
  if (rows > 1)
    return tileEntry < MR / 3 < 2 ? 2 : MR / 3, Rows, T > ;
  return tileEntry<1, Rows, T>;
}

} // namespace
