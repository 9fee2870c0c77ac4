// SPDX-License-Identifier: Apache-2.0
// GEMMs against naive FP64 loops, for every kernel that this processor runs, over types, layouts, batches, epilogues
// and odd sizes; and equal results for every thread count.
#include "cpu/Gemm.h"
#include "Check.h"
#include "Values.h"
#include "core/Error.h"
#include "core/Float.h"
#include "cpu/Amx.h"
#include "mpt/Support/TwoChains.h"

#include <algorithm>
#include <cmath>
#include <string>

using namespace mpt::rt;
using mpt::test::Call;
using mpt::test::Values;

namespace {

/// Relative to the sum of magnitudes: FP32 accumulation, then one rounding to the output type.
double tolerance(const mpt_gemm_desc &g) {
  double out = g.d_type == MPT_FLOAT16 ? 0x1p-11 : g.d_type == MPT_BFLOAT16 ? 0x1p-8 : 0x1p-23;
  return g.d_type == MPT_FLOAT64 ? 1e-14 : out + 0x1p-23 * std::sqrt(static_cast<double>(g.k + 4));
}

double activate(double x, int64_t flags) {
  if (flags & MPT_GEMM_RELU)
    return x < 0 ? 0 : x;
  if (flags & MPT_GEMM_GELU_ERF)
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (flags & MPT_GEMM_GELU_TANH)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}

struct Operands {
  Values a, b, bias, d;
};

/// The largest error over its bound; below 1 is right.
double worst(const mpt_gemm_desc &g, const Operands &in, const Values &before) {
  double worst = 0;
  std::vector<double> a = in.a.all(), b = in.b.all();
  for (int64_t b0 = 0; b0 < g.batch0; ++b0)
    for (int64_t b1 = 0; b1 < g.batch1; ++b1)
      for (int64_t i = 0; i < g.m; ++i)
        for (int64_t j = 0; j < g.n; ++j) {
          double sum = 0, size = 0;
          for (int64_t p = 0; p < g.k; ++p) {
            double x = a[static_cast<size_t>(b0 * g.a_batch0 + b1 * g.a_batch1 + i * g.a_row + p * g.a_col)] *
                       b[static_cast<size_t>(b0 * g.b_batch0 + b1 * g.b_batch1 + p * g.b_row + j * g.b_col)];
            sum += x;
            size += std::fabs(x);
          }
          sum *= g.alpha;
          size *= std::fabs(g.alpha);
          int64_t at = b0 * g.d_batch0 + b1 * g.d_batch1 + i * g.d_row + j;
          if (g.flags & MPT_GEMM_BIAS) {
            sum += in.bias[j];
            size += std::fabs(in.bias[j]);
          }
          sum = activate(sum, g.flags);
          if (g.flags & MPT_GEMM_ACCUMULATE) {
            sum += before[at];
            size += std::fabs(before[at]);
          }
          double error = std::fabs(in.d[at] - sum) / (size * tolerance(g) + 0x1p-24);
          worst = error <= worst ? worst : error; // NaN counts as worst
        }
  return worst;
}

mpt_gemm_desc describe(int64_t m, int64_t n, int64_t k, int64_t in, int64_t out, bool ta, bool tb) {
  mpt_gemm_desc g{};
  g.m = m, g.n = n, g.k = k, g.batch0 = g.batch1 = 1, g.alpha = 1;
  g.a_type = g.b_type = in, g.d_type = out, g.bias_type = MPT_FLOAT32;
  g.a_row = ta ? 1 : k + 3, g.a_col = ta ? m + 2 : 1;
  g.b_row = tb ? 1 : n + 1, g.b_col = tb ? k + 5 : 1;
  g.d_row = n + 4, g.d_col = 1;
  return g;
}

Operands allocate(const mpt_gemm_desc &g) {
  int64_t a = (g.batch0 - 1) * g.a_batch0 + (g.batch1 - 1) * g.a_batch1 + (g.m - 1) * g.a_row + (g.k - 1) * g.a_col + 1;
  int64_t b = (g.batch0 - 1) * g.b_batch0 + (g.batch1 - 1) * g.b_batch1 + (g.k - 1) * g.b_row + (g.n - 1) * g.b_col + 1;
  int64_t d = (g.batch0 - 1) * g.d_batch0 + (g.batch1 - 1) * g.d_batch1 + (g.m - 1) * g.d_row + g.n;
  return {Values::random(g.a_type, a), Values::random(g.b_type, b), Values::random(g.bias_type, g.n),
          Values::random(g.d_type, d)};
}

bool run(const mpt_gemm_desc &g, Operands &o, int threads) {
  Call call(threads);
  return mpt_rt_gemm(&call.exec, 0, &g, o.a.data(), o.b.data(), o.bias.data(), o.d.data()) == 0;
}

void testCase(const mpt_gemm_desc &g) {
  Operands o = allocate(g);
  Values before = o.d;
  if (!EXPECT(run(g, o, 1)) || !EXPECT(worst(g, o, before) < 1))
    fprintf(stderr, "  %ldx%ldx%ld batch %ldx%ld %s %s -> %s flags %ld strides a %ld,%ld b %ld,%ld: %g\n", (long)g.m,
            (long)g.n, (long)g.k, (long)g.batch0, (long)g.batch1, nameOf(g.a_type), nameOf(g.b_type), nameOf(g.d_type),
            (long)g.flags, (long)g.a_row, (long)g.a_col, (long)g.b_row, (long)g.b_col, worst(g, o, before));
  for (int threads : {2, 3, 5}) {
    Operands again{o.a, o.b, o.bias, before};
    run(g, again, threads);
    EXPECT(again.d.bytes == o.d.bytes);
  }
}

/// Every narrow value widened; values between them, at ties, among subnormals and beyond the range rounded: bit for
/// bit.
void testConversions(const GemmKernels &kernel) {
  for (int64_t type : {MPT_FLOAT16, MPT_BFLOAT16}) {
    auto widened = [&](uint16_t h) { return type == MPT_FLOAT16 ? fromF16(h) : fromBF16(h); };
    std::vector<uint16_t> codes(65536), narrow;
    std::vector<float> wide(codes.size()), between;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<uint16_t>(i);
      uint32_t u = bitsOf(widened(codes[i])), half = type == MPT_FLOAT16 ? 0x1000 : 0x8000;
      for (uint32_t bits : {u, u + half - 1, u + half, u + half + 1})
        between.push_back(floatOf(bits));
      if (type == MPT_FLOAT16) // ties between its subnormal values
        between.push_back(widened(codes[i]) + 0x1p-25f);
    }
    kernel.widen(type, codes.data(), static_cast<int64_t>(codes.size()), wide.data());
    for (size_t i = 0; i < codes.size(); ++i)
      if (float x = widened(codes[i]); !EXPECT(x != x ? wide[i] != wide[i] : bitsOf(wide[i]) == bitsOf(x)))
        return;
    narrow.resize(between.size());
    kernel.narrow(type, between.data(), static_cast<int64_t>(between.size()), narrow.data());
    for (size_t i = 0; i < narrow.size(); ++i) {
      float x = between[i], back = widened(narrow[i]);
      uint16_t right = type == MPT_FLOAT16 ? toF16(x) : toBF16(x);
      if (!EXPECT(x != x ? back != back : narrow[i] == right)) {
        fprintf(stderr, "  %s %s %a: %04x, expected %04x\n", kernel.name, nameOf(type), x, narrow[i], right);
        return;
      }
    }
  }
}

constexpr int64_t narrowest[] = {MPT_FLOAT8E4M3FN, MPT_FLOAT8E5M2};

void runKernel(const GemmKernels &kernel, const mpt_gemm_desc &g, Operands &o) {
  static Scratch scratch;
  GemmTask task{&g, o.a.data(), o.b.data(), o.bias.data(), o.d.data(), 0, g.m, 0, g.n};
  kernel.run(task, static_cast<float *>(scratch.get(kernel.scratchBytes)));
}

/// Products of 8-bit operands whose rows of A, or columns of B, have one number at most: bitwise exact in FP32.
void testExactProducts(const GemmKernels &kernel, mpt_gemm_desc g, int64_t everyA, int64_t everyB) {
  Operands o = allocate(g);
  for (Values *x : {&o.a, &o.b}) // NaN, in both types, between lines
    std::fill(x->bytes.begin(), x->bytes.end(), uint8_t{0x7f});
  // Codes in turn, each at another k among zeros; one code everywhere in the other operand.
  auto fill = [&](Values &x, int64_t lines, int64_t line, int64_t depth, int64_t every) {
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t p = 0; p < g.k; ++p)
        x.bytes[static_cast<size_t>(i * line + p * depth)] = static_cast<uint8_t>(every              ? every
                                                                                  : p == i * 7 % g.k ? i
                                                                                                     : 0);
  };
  fill(o.a, g.m, g.a_row, g.a_col, everyA);
  fill(o.b, g.n, g.b_col, g.b_row, everyB);
  runKernel(kernel, g, o);
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      auto x = static_cast<float>(o.a[i * g.a_row + (everyA ? 0 : i * 7 % g.k) * g.a_col]);
      auto y = static_cast<float>(o.b[j * g.b_col + (everyB ? 0 : j * 7 % g.k) * g.b_row]);
      float d = o.d.as<float>(i * g.d_row + j), right = 0 + x * y;
      if (!EXPECT(right != right ? d != d : bitsOf(d) == bitsOf(right))) {
        fprintf(stderr, "  %s %s x %s at %ld,%ld of k %ld strides a %ld,%ld b %ld,%ld: %a, expected %a\n", kernel.name,
                nameOf(g.a_type), nameOf(g.b_type), (long)i, (long)j, (long)g.k, (long)g.a_row, (long)g.a_col,
                (long)g.b_row, (long)g.b_col, d, right);
        return;
      }
    }
}

/// Each of the 256 codes as an operand: every pair of them at k of 1, and every place in a vector.
void testCodes(const GemmKernels &kernel) {
  for (int64_t a : narrowest)
    for (int64_t b : narrowest)
      for (int layout = 0; layout < 4; ++layout) {
        auto of = [&](int64_t m, int64_t n, int64_t k) {
          mpt_gemm_desc g = describe(m, n, k, a, MPT_FLOAT32, layout & 1, layout & 2);
          g.b_type = b;
          return g;
        };
        testExactProducts(kernel, of(256, 256, 1), 0, 0);
        int64_t oneA = a == MPT_FLOAT8E4M3FN ? 0x38 : 0x3c, oneB = b == MPT_FLOAT8E4M3FN ? 0x38 : 0x3c;
        for (int64_t k : {70, 801})
          for (int64_t few : {10, 40}) {
            testExactProducts(kernel, of(267, few, k), 0, oneB);
            testExactProducts(kernel, of(few, 267, k), oneA, 0);
          }
      }
}

/// Whether operands are packed to BF16, which has no other values than its own and those of 8 bits.
bool isOfPairs(const GemmKernels *kernels) { return kernels->windows == nullptr; }

bool hasTwoChains(const GemmKernels &kernels) { return std::string(kernels.name) != "avx512-bf16"; }

[[maybe_unused]] void skip(const char *kernel) { printf("gemm: %s is not tested: this processor lacks it\n", kernel); }

std::vector<const GemmKernels *> findKernels() {
#if defined(MPT_TEST_AVX512)
  return {&gemmAvx512, &gemmAvx512Bf16};
#else
  std::vector<const GemmKernels *> kernels{&gemmPortable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    kernels.push_back(&gemmAvx2);
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    kernels.push_back(&gemmAvx512);
    __builtin_cpu_supports("avx512bf16") ? kernels.push_back(&gemmAvx512Bf16) : skip("avx512-bf16");
    hasAmx() ? kernels.push_back(&gemmAmx) : skip("amx");
  }
#elif defined(__aarch64__)
  kernels.push_back(&gemmNeon);
#endif
  return kernels;
#endif
}

const std::vector<const GemmKernels *> &kernelsHere() {
  static const std::vector<const GemmKernels *> kernels = findKernels();
  return kernels;
}

/// One GEMM of a kernel without the dispatcher; bit 0 of `layout`: an epilogue and a narrow result, bit 1: a narrow B.
void testKernel(const GemmKernels &kernel, int64_t type, int64_t m, int64_t n, int64_t k, int layout) {
  const bool narrow = sizeOf(type) == 1;
  int64_t out = !(layout & 1) ? int64_t{MPT_FLOAT32} : narrow ? int64_t{MPT_FLOAT16} : type;
  mpt_gemm_desc g = describe(m, n, k, type, out, layout & 1, layout & 2);
  g.flags = layout & 1 ? MPT_GEMM_BIAS | MPT_GEMM_RELU : 0;
  if (narrow && layout & 2)
    g.b_type = narrowest[type == narrowest[0]];
  Operands o = allocate(g);
  Values before = o.d;
  runKernel(kernel, g, o);
  if (!EXPECT(worst(g, o, before) < 1))
    fprintf(stderr, "  %s %s %ldx%ldx%ld layout %d\n", kernel.name, nameOf(type), (long)m, (long)n, (long)k, layout);
}

void testKernels() {
  for (const GemmKernels *kernel : kernelsHere()) {
    testConversions(*kernel);
    testCodes(*kernel);
    for (int64_t type : {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16, MPT_FLOAT8E4M3FN, MPT_FLOAT8E5M2}) {
      if (isOfPairs(kernel) && (type == MPT_FLOAT32 || type == MPT_FLOAT16))
        continue;
      for (int64_t m : {1, 5, 13, 37, 200})
        for (int64_t n : {1, 10, 17, 70})
          for (int64_t k : {1, 9, m == 37 ? 801 : 400})
            for (int layout = 0; layout < 4; ++layout)
              testKernel(*kernel, type, m, n, k, layout);
    }
  }
}

/// Operands in FP32 that lose digits in `type`: ties and subnormal numbers among them.
Operands allocateWide(const mpt_gemm_desc &g, int64_t type) {
  Operands wide = allocate(g);
  for (Values *x : {&wide.a, &wide.b})
    for (int64_t i = 0; i < x->count(); ++i)
      x->set(i, i % 7 == 0   ? 1 + (2 * (i % 5) + 1) * (type == MPT_FLOAT16 ? 0x1p-11 : 0x1p-8)
                : i % 7 == 1 ? static_cast<double>(i % 64) * 0x1p-26
                             : rand() / 1e9);
  return wide;
}

Values copyAs(int64_t type, const Values &from) {
  Values to(type, from.count());
  for (int64_t i = 0; i < from.count(); ++i)
    to.set(i, from[i]);
  return to;
}

/// `turn`: two bits of the layout, then the operands that are read rounded: B, A, both.
void testReadNarrow(const GemmKernels &kernel, int64_t type, const int64_t (&size)[3], int turn) {
  mpt_gemm_desc g = describe(size[0], size[1], size[2], MPT_FLOAT32, MPT_FLOAT32, turn & 1, turn & 2);
  Operands wide = allocateWide(g, type), mixed = wide, plain = wide;
  Operands narrow{copyAs(type, wide.a), copyAs(type, wide.b), wide.bias, wide.d};
  runKernel(isOfPairs(&kernel) ? gemmKernels() : kernel, g, plain);
  g.a_type = g.b_type = type;
  runKernel(kernel, g, narrow);
  if (turn / 4 == 0)
    mixed.a = narrow.a;
  if (turn / 4 == 1)
    mixed.b = narrow.b;
  g.a_type = mixed.a.dtype, g.b_type = mixed.b.dtype;
  g.flags = type == MPT_FLOAT16 ? MPT_GEMM_READ_F16 : MPT_GEMM_READ_BF16;
  runKernel(kernel, g, mixed);
  if (!EXPECT(mixed.d.bytes == narrow.d.bytes) || (g.k > 30 && !EXPECT(plain.d.bytes != narrow.d.bytes)))
    fprintf(stderr, "  %s %s %ldx%ldx%ld turn %d\n", kernel.name, nameOf(type), (long)g.m, (long)g.n, (long)g.k, turn);
}

/// FP32 operands that are rounded while they are read give the bits of narrow copies, and not the bits of FP32.
void testReadNarrow() {
  const int64_t sizes[][3] = {{1, 40, 9}, {5, 70, 400}, {37, 10, 400}, {200, 45, 801}, {13, 3, 70}, {30, 64, 33}};
  for (const GemmKernels *kernel : kernelsHere())
    for (int64_t type : {MPT_FLOAT16, MPT_BFLOAT16})
      for (auto &size : sizes)
        for (int turn = 0; turn < 12 && !(isOfPairs(kernel) && type == MPT_FLOAT16); ++turn)
          testReadNarrow(*kernel, type, size, turn);
}

/// The kernel that multiplies BF16 is chosen where the processor has it, for two operands that BF16 has.
void testChoice() {
  const GemmKernels *best = kernelsHere().back();
  const GemmKernels &wide = isOfPairs(best) ? gemmKernels() : *best;
  for (int64_t a : {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16, MPT_FLOAT8E4M3FN, MPT_FLOAT8E5M2})
    for (int64_t b : {MPT_BFLOAT16, MPT_FLOAT8E4M3FN})
      for (int64_t flags : {int64_t{0}, int64_t{MPT_GEMM_READ_F16}, int64_t{MPT_GEMM_READ_BF16}}) {
        mpt_gemm_desc g = describe(40, 40, 40, a, MPT_FLOAT32, false, false);
        g.b_type = b;
        g.flags = flags;
        bool pairs = a != MPT_FLOAT16 && (a != MPT_FLOAT32 || flags == MPT_GEMM_READ_BF16);
        EXPECT(&gemmKernels(g, nullptr) == (pairs ? best : &wide));
        Gather image{};
        EXPECT(&gemmKernels(g, &image) == &wide);
        g.flags |= MPT_GEMM_ORDERED;
        EXPECT(&gemmKernels(g, nullptr) == &wide);
        g.flags |= MPT_GEMM_TWO_CHAINS; // which tiles have, and no other pairs
        EXPECT(&gemmKernels(g, nullptr) == (pairs && hasTwoChains(*best) ? best : &wide));
        g.flags = flags;
        g.m = g.n = g.k = 8; // padding would be most of it
        EXPECT(&gemmKernels(g, nullptr) == &wide);
      }
}

/// Narrow GEMMs with MPT_GEMM_ROUND give the bits of separate steps, each rounded to the narrow type.
void testRoundedSteps() {
  for (int64_t type : {MPT_FLOAT16, MPT_BFLOAT16})
    for (int64_t n : {3, 10, 40})
      for (int64_t flags : {int64_t{MPT_GEMM_BIAS}, int64_t{MPT_GEMM_BIAS | MPT_GEMM_RELU}}) {
        mpt_gemm_desc g = describe(33, n, 700, type, type, false, true);
        g.bias_type = type;
        Operands o = allocate(g), plain = o;
        EXPECT(run(g, plain, 1));
        g.flags = flags | MPT_GEMM_ROUND;
        EXPECT(run(g, o, 1));
        int64_t wrong = 0, different = 0;
        for (int64_t i = 0; i < g.m; ++i)
          for (int64_t j = 0; j < g.n; ++j) {
            int64_t at = i * g.d_row + j;
            Values one(type, 1);
            one.set(0, static_cast<float>(plain.d[at]) + static_cast<float>(o.bias[j]));
            double expected = flags & MPT_GEMM_RELU && one[0] < 0 ? 0 : one[0];
            wrong += o.d[at] != expected;
            different += o.d[at] != plain.d[at];
          }
        EXPECT(wrong == 0 && different > 0);
      }
}

/// A scale that is there at run time gives the bits of the GEMM in FP32, multiplied and rounded once.
void testScale() {
  for (float scale : {0x1p-9f, 4.0f, 0.3f})
    for (int64_t n : {3, 40}) {
      mpt_gemm_desc g = describe(17, n, 700, MPT_FLOAT16, MPT_FLOAT32, false, true), narrow = g;
      narrow.d_type = MPT_FLOAT16;
      narrow.flags = MPT_GEMM_SCALE;
      Operands wide = allocate(g), o{wide.a, wide.b, wide.bias, Values(MPT_FLOAT16, (g.m - 1) * g.d_row + n)};
      o.bias.set(0, scale);
      EXPECT(run(g, wide, 1) && run(narrow, o, 1));
      int64_t wrong = 0;
      for (int64_t i = 0; i < g.m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          Values one(MPT_FLOAT16, 1);
          one.set(0, static_cast<float>(wide.d[i * g.d_row + j]) * scale);
          wrong += o.d[i * g.d_row + j] != one[0];
        }
      EXPECT(wrong == 0);
    }
  mpt_gemm_desc g = describe(4, 4, 4, MPT_FLOAT16, MPT_FLOAT16, false, false);
  g.flags = MPT_GEMM_SCALE | MPT_GEMM_RELU;
  Operands o = allocate(g);
  EXPECT(!run(g, o, 1));
  EXPECT(std::string(mpt_last_error()).find("no other flag") != std::string::npos);
}

/// The promise of MPT_GEMM_ORDERED for FP32 results: a chain of fused multiply-adds from k = 0 on, whatever the shape.
bool isChain(const mpt_gemm_desc &g, const Operands &o) {
  std::vector<double> a = o.a.all(), b = o.b.all(), d = o.d.all();
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < g.k; ++p)
        sum = std::fma(static_cast<float>(a[static_cast<size_t>(i * g.a_row + p * g.a_col)]),
                       static_cast<float>(b[static_cast<size_t>(p * g.b_row + j * g.b_col)]), sum);
      if (d[static_cast<size_t>(i * g.d_row + j)] != static_cast<double>(sum))
        return false;
    }
  return true;
}

/// One row and many, few columns and more than a block of them, one block of k and several.
void testOrdered() {
  const int64_t sizes[][3] = {{1, 3, 700},   {7, 3, 700},  {1, 40, 97},    {13, 40, 321},
                              {160, 17, 33}, {6, 64, 640}, {5, 1060, 801}, {200, 1, 900}};
  for (int64_t type : {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16, MPT_FLOAT8E4M3FN})
    for (auto &size : sizes)
      for (int layout = 0; layout < 4; ++layout) {
        mpt_gemm_desc g = describe(size[0], size[1], size[2], type, MPT_FLOAT32, layout & 1, layout & 2);
        g.flags = MPT_GEMM_ORDERED;
        Operands o = allocate(g);
        for (int threads : {1, 3}) {
          EXPECT(run(g, o, threads));
          if (type != MPT_FLOAT32 || &gemmKernels() != &gemmPortable) // which fuses nothing
            if (!EXPECT(isChain(g, o)))
              fprintf(stderr, "  ordered %s: m %ld n %ld k %ld layout %d threads %d\n", nameOf(type), (long)g.m,
                      (long)g.n, (long)g.k, layout, threads);
        }
        g.flags = 0;
        EXPECT(run(g, o, 1)); // sums of blocks and of lanes: the check can fail
        if (type == MPT_FLOAT32 && g.k > 600)
          EXPECT(!isChain(g, o));
      }
}

/// Sizes of BF16 operands.
enum class Sizes {
  Like,    ///< each other
  Special, ///< a few infinities and NaN among those
  Small,   ///< products about the least normal number
  All      ///< subnormal numbers, and products that overflow
};

Operands allocateOf(const mpt_gemm_desc &g, Sizes sizes) {
  Operands o = allocate(g);
  for (Values *x : {&o.a, &o.b})
    for (int64_t i = 0; i < x->count(); ++i) {
      const int random = rand();
      int exponent = sizes == Sizes::Small ? 127 - 63 - 6 + random % 13 : 127 - 4 + random % 9;
      if (sizes == Sizes::All)
        exponent = random % 255;
      if (sizes == Sizes::Special && random % 1021 == 0)
        exponent = 255;
      reinterpret_cast<uint16_t *>(x->data())[i] = static_cast<uint16_t>((random >> 9 & 0x807f) | exponent << 7);
    }
  return o;
}

/// The sums of a GEMM of BF16 operands, row by row; with `flushes` as matrix tiles define them, else with subnormal
/// numbers.
std::vector<float> sumsInTwoChains(const mpt_gemm_desc &g, const Operands &o, bool flushes) {
  auto at = [&](const Values &x, int64_t place) {
    float value = fromBF16(x.as<uint16_t>(place));
    return flushes ? mpt::TwoChains::flushed(value) : value;
  };
  std::vector<float> sums(static_cast<size_t>(g.m * g.n));
  for (int64_t s = 0; s < g.m * g.n; ++s)
    for (int64_t p = 0; p < g.k; p += mpt::TwoChains::terms) {
      auto a = [&](int64_t q) { return at(o.a, s / g.n * g.a_row + (p + q) * g.a_col); };
      auto b = [&](int64_t q) { return at(o.b, (p + q) * g.b_row + s % g.n * g.b_col); };
      const int64_t count = std::min(g.k - p, mpt::TwoChains::terms);
      float chains[2] = {0, 0}, &sum = sums[static_cast<size_t>(s)];
      for (int64_t q = 0; q < count && !flushes; ++q)
        chains[q % 2] = std::fma(a(q), b(q), chains[q % 2]);
      sum = flushes ? mpt::TwoChains::add(sum, a, b, count) : sum + (chains[0] + chains[1]);
    }
  return sums;
}

int64_t differing(const mpt_gemm_desc &g, const Operands &o, const std::vector<float> &right) {
  int64_t count = 0;
  for (int64_t s = 0; s < g.m * g.n; ++s) {
    float d = o.d.as<float>(s / g.n * g.d_row + s % g.n), x = right[static_cast<size_t>(s)];
    count += x != x ? d == d : bitsOf(d) != bitsOf(x);
  }
  return count;
}

/// MPT_GEMM_TWO_CHAINS, bit for bit, by each kernel that has it and by the dispatcher.
void testTwoChains(const int64_t (&size)[3], int layout, Sizes sizes) {
  mpt_gemm_desc g = describe(size[0], size[1], size[2], MPT_BFLOAT16, MPT_FLOAT32, layout & 1, layout & 2);
  const Operands o = allocateOf(g, sizes);
  const std::vector<float> right = sumsInTwoChains(g, o, true);
  auto expectSame = [&](const Operands &given, const char *by) {
    if (!EXPECT(differing(g, given, right) == 0))
      fprintf(stderr, "  two chains by %s: %ldx%ldx%ld layout %d sizes %d: %ld\n", by, (long)g.m, (long)g.n, (long)g.k,
              layout, static_cast<int>(sizes), (long)differing(g, given, right));
  };
  // Without fused multiply-adds, products are rounded where they are subnormal or overflow.
  const bool extreme = sizes == Sizes::Small || sizes == Sizes::All;
  g.flags = MPT_GEMM_ORDERED | MPT_GEMM_TWO_CHAINS;
  for (const GemmKernels *kernel : kernelsHere())
    if (hasTwoChains(*kernel) && !(extreme && std::string(kernel->name) == "portable")) {
      Operands own = o;
      runKernel(*kernel, g, own);
      expectSame(own, kernel->name);
    }
  for (int threads : {1, 3}) {
    Operands own = o;
    EXPECT(run(g, own, threads));
    if (!extreme || &gemmKernels() != &gemmPortable)
      expectSame(own, "all");
  }
  // The check can fail: one chain, and subnormal numbers that stay.
  g.flags = MPT_GEMM_ORDERED;
  Operands one = o;
  EXPECT(run(g, one, 1));
  EXPECT(sizes != Sizes::Like || g.k < 9 || differing(g, one, right) > 0);
  if (sizes == Sizes::Small && g.k > 2 && g.m * g.n > 20) {
    const std::vector<float> kept = sumsInTwoChains(g, o, false);
    EXPECT(memcmp(kept.data(), right.data(), right.size() * sizeof(float)) != 0);
  }
}

/// 2^-126 less a quarter and three quarters of its last bit's half, in one chain: rounded up among subnormal numbers.
/// Whether that is 0 depends on all bits of the sum.
void testEdgeOfFlush() {
  mpt_gemm_desc g = describe(1, 2, 3, MPT_BFLOAT16, MPT_FLOAT32, false, false);
  g.flags = MPT_GEMM_ORDERED | MPT_GEMM_TWO_CHAINS;
  Operands o = allocate(g);
  for (int64_t p : {0, 1, 2})
    o.a.set(p, p == 1 ? 0 : 0x1p-63);
  for (int64_t j : {0, 1}) {
    o.b.set(j, 0x1p-63);
    o.b.set(g.b_row + j, 0);
    o.b.set(2 * g.b_row + j, j ? -0.5 * 0x1p-88 : -1.5 * 0x1p-88);
  }
  EXPECT(sumsInTwoChains(g, o, true) == (std::vector<float>{0, 0x1p-126F}));
  for (const GemmKernels *kernel : kernelsHere())
    if (hasTwoChains(*kernel) && std::string(kernel->name) != "portable") {
      runKernel(*kernel, g, o);
#if defined(__aarch64__) // decides before it rounds
      const std::vector<float> right{0, 0};
#else
      const std::vector<float> right{0, 0x1p-126F};
#endif
      if (!EXPECT(differing(g, o, right) == 0))
        fprintf(stderr, "  %s: %a, %a\n", kernel->name, o.d[0], o.d[1]);
    }
}

void testTwoChains() {
  const int64_t sizes[][3] = {{1, 3, 700},   {7, 40, 1},   {3, 17, 31},    {13, 40, 321}, {40, 33, 32},
                              {160, 17, 33}, {6, 64, 640}, {5, 1060, 801}, {200, 1, 900}, {37, 40, 3300}};
  for (auto &size : sizes)
    for (int layout = 0; layout < 4; ++layout)
      for (Sizes of : {Sizes::Like, Sizes::Special, Sizes::Small, Sizes::All})
        testTwoChains(size, layout, of);
  testEdgeOfFlush();
}

void testErrors() {
  mpt_gemm_desc g = describe(4, 4, 4, MPT_FLOAT32, MPT_FLOAT32, false, false);
  Operands o = allocate(g);
  g.a_col = 2;
  EXPECT(!run(g, o, 1));
  EXPECT(std::string(mpt_last_error()).find("stride of 1") != std::string::npos);
  g = describe(4, 4, 4, MPT_INT32, MPT_FLOAT32, false, false);
  EXPECT(!run(g, o, 1));
  EXPECT(std::string(mpt_last_error()).find("int32") != std::string::npos);
  g = describe(4, 4, 4, MPT_FLOAT16, MPT_FLOAT32, false, false);
  g.flags = MPT_GEMM_ORDERED | MPT_GEMM_TWO_CHAINS;
  EXPECT(!run(g, o, 1));
  EXPECT(std::string(mpt_last_error()).find("two chains, got float16") != std::string::npos);
}

} // namespace

int main() {
  srand(7);
  testKernels();
  testChoice();
  testReadNarrow();
  testRoundedSteps();
  const int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},      {64, 96, 64},  {67, 131, 85},   {129, 1030, 33},
                              {17, 40, 700}, {600, 33, 700}, {5, 300, 260}, {14, 1060, 801}, {37, 40, 3300}};
  const int64_t types[][2] = {{MPT_FLOAT32, MPT_FLOAT32},       {MPT_FLOAT16, MPT_FLOAT16},
                              {MPT_FLOAT16, MPT_FLOAT32},       {MPT_BFLOAT16, MPT_BFLOAT16},
                              {MPT_BFLOAT16, MPT_FLOAT32},      {MPT_FLOAT64, MPT_FLOAT64},
                              {MPT_FLOAT8E4M3FN, MPT_FLOAT16},  {MPT_FLOAT8E5M2, MPT_FLOAT32},
                              {MPT_FLOAT8E4M3FN, MPT_BFLOAT16}, {MPT_FLOAT8E5M2, MPT_FLOAT16}};
  const int64_t flags[] = {0,
                           MPT_GEMM_BIAS,
                           MPT_GEMM_BIAS | MPT_GEMM_RELU,
                           MPT_GEMM_ACCUMULATE,
                           MPT_GEMM_BIAS | MPT_GEMM_GELU_ERF,
                           MPT_GEMM_GELU_TANH | MPT_GEMM_ACCUMULATE};
  int count = 0;
  for (auto &type : types)
    for (auto &size : sizes)
      for (int layout = 0; layout < 4; ++layout) {
        mpt_gemm_desc g = describe(size[0], size[1], size[2], type[0], type[1], layout & 1, layout & 2);
        g.flags = flags[count++ % 6];
        if (count % 3 == 0)
          g.alpha = 0.125;
        if (count % 5 == 0)
          g.bias_type = MPT_FLOAT16;
        testCase(g);
      }
  for (auto &type : types)
    for (int layout = 0; layout < 4; ++layout) {
      // Attention: batch and heads are strides, the data is not transposed.
      mpt_gemm_desc g = describe(32, 24, 16, type[0], type[1], layout & 1, layout & 2);
      g.batch0 = 3, g.batch1 = 2;
      g.a_batch0 = 2000, g.a_batch1 = 1000, g.b_batch0 = 1500, g.b_batch1 = layout ? 700 : 0;
      g.d_batch0 = 2 * 32 * 28, g.d_batch1 = 32 * 28;
      g.alpha = 0.25;
      testCase(g);
    }
  mpt_gemm_desc g = describe(8, 24, 16, MPT_FLOAT16, MPT_FLOAT16, false, false); // a batch that folds into rows
  g.batch0 = 2, g.batch1 = 3;
  g.a_batch1 = 8 * g.a_row, g.a_batch0 = 24 * g.a_row, g.d_batch1 = 8 * g.d_row, g.d_batch0 = 24 * g.d_row;
  testCase(g);
  g = describe(12, 64, 640, MPT_FLOAT32, MPT_FLOAT32, false, false); // whole tiles, scaled, of a B that is not packed
  g.alpha = 0.125;
  testCase(g);
  testScale();
  testOrdered();
  testTwoChains();
  testErrors();
  return mpt::test::finish("gemm");
}
