// SPDX-License-Identifier: Apache-2.0
// mpt_rt_gemm: checks a GEMM, cuts it into tasks for the threads, and picks the kernel for this processor.
#include "cpu/Gemm.h"
#include "cpu/Amx.h"

#include "core/Context.h"
#include "core/Error.h"
#include "core/Profile.h"
#include "core/Types.h"

#include <algorithm>
#include <cstdlib>

using namespace mpt::rt;

namespace mpt::rt {

/// Whether BF16 has what an operand in memory of type `type` is multiplied as.
static bool hasBf16(const mpt_gemm_desc &g, int64_t type) {
  return sizeOf(type) == 1 || type == MPT_BFLOAT16 || (type == MPT_FLOAT32 && g.flags & MPT_GEMM_READ_BF16);
}

/// Fewer products of a matrix take longer as pairs, whose operands are padded.
[[maybe_unused]] static constexpr int64_t fewestProducts = 8192;

const GemmKernels &gemmKernels() {
  static const GemmKernels &best = []() -> const GemmKernels & {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      return gemmAvx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
      return gemmAvx2;
#elif defined(__aarch64__)
    return gemmNeon;
#endif
    return gemmPortable;
  }();
  return best;
}

bool hasTiles() {
#if defined(__x86_64__)
  return &gemmKernels() == &gemmAvx512 && hasAmx();
#else
  return false;
#endif
}

const GemmKernels &gemmKernels([[maybe_unused]] const mpt_gemm_desc &desc, [[maybe_unused]] const Gather *gather) {
#if defined(__x86_64__)
  const int64_t order = desc.flags & orderFlags;
  bool narrow = hasBf16(desc, desc.a_type) && hasBf16(desc, desc.b_type) && !gather && order != MPT_GEMM_ORDERED;
  if ((narrow && desc.m * desc.n * desc.k >= fewestProducts) || (gather && gather->isA)) {
    if (hasTiles())
      return gemmAmx;
    if (&gemmKernels() == &gemmAvx512 && __builtin_cpu_supports("avx512bf16") && !order)
      return gemmAvx512Bf16;
  }
#endif
  return gemmKernels();
}

} // namespace mpt::rt

namespace {

thread_local Scratch scratch; // packing memory that a thread keeps for its lifetime

struct Plan {
  mpt_gemm_desc desc;
  const char *a, *b;
  const void *bias;
  char *d;
  const GemmKernels *kernels;
  const Gather *gather;
  int64_t tasks, partsM, partsN, units;
  bool outOfMemory;
};

/// Folds a batch dimension that continues A's and D's rows and repeats B into m.
void foldBatch(mpt_gemm_desc &g) {
  auto fold = [&](int64_t &batch, int64_t a, int64_t b, int64_t d) {
    bool fits = batch > 1 && b == 0 && a == g.m * g.a_row && d == g.m * g.d_row && (g.a_col == 1 || g.m == 1);
    if (fits) {
      g.m *= batch;
      batch = 1;
    }
  };
  fold(g.batch1, g.a_batch1, g.b_batch1, g.d_batch1);
  if (g.batch1 == 1)
    fold(g.batch0, g.a_batch0, g.b_batch0, g.d_batch0);
}

/// A stride over an extent of 1 says nothing: make one of the two strides 1 where that decides the layout.
bool settleStrides(mpt_gemm_desc &g) {
  auto settle = [](int64_t rows, int64_t cols, int64_t &row, int64_t &col) {
    if (row != 1 && col != 1) {
      if (cols <= 1)
        col = 1;
      else if (rows <= 1)
        row = 1;
    }
    return row == 1 || col == 1;
  };
  if (g.n <= 1)
    g.d_col = 1;
  return settle(g.m, g.k, g.a_row, g.a_col) && settle(g.k, g.n, g.b_row, g.b_col) && g.d_col == 1;
}

/// Cuts one GEMM into partsM x partsN rectangles so that packing is repeated least.
void split(Plan &plan, int threads) {
  const mpt_gemm_desc &g = plan.desc;
  int64_t batch = g.batch0 * g.batch1, m = (g.m + plan.kernels->mr - 1) / plan.kernels->mr,
          n = (g.n + plan.kernels->nr - 1) / plan.kernels->nr;
  plan.partsM = plan.partsN = 1;
  double work = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (work * static_cast<double>(batch) < 32768)
    threads = 1;
  if (threads > 1 && batch < 4 * threads && batch % threads != 0) {
    double best = 1e300;
    for (int64_t parts = 1; parts <= threads; ++parts) {
      int64_t other = threads / parts;
      if (parts > m || other > n)
        continue;
      // Time of the slowest part: its tiles, and packing at the price of about 12 columns or rows.
      int64_t tilesM = (m + parts - 1) / parts, tilesN = (n + other - 1) / other;
      auto rows = static_cast<double>(tilesM * plan.kernels->mr), cols = static_cast<double>(tilesN * plan.kernels->nr);
      double cost = rows * cols + 12 * (rows + cols);
      if (cost < best) {
        best = cost;
        plan.partsM = parts;
        plan.partsN = other;
      }
    }
  }
  plan.units = batch * plan.partsM * plan.partsN;
  plan.tasks = std::min<int64_t>(threads, plan.units);
}

void runUnit(const Plan &plan, int64_t unit) {
  const mpt_gemm_desc &g = plan.desc;
  int64_t part = unit % (plan.partsM * plan.partsN), batch = unit / (plan.partsM * plan.partsN);
  int64_t i = part / plan.partsN, j = part % plan.partsN, b0 = batch / g.batch1, b1 = batch % g.batch1;
  auto bound = [](int64_t index, int64_t parts, int64_t extent, int64_t tile) {
    int64_t tiles = (extent + tile - 1) / tile;
    return std::min(tiles * index / parts * tile, extent);
  };
  GemmTask task;
  task.desc = &g;
  task.a = plan.a + (b0 * g.a_batch0 + b1 * g.a_batch1) * sizeOf(g.a_type);
  task.b = plan.b + (b0 * g.b_batch0 + b1 * g.b_batch1) * sizeOf(g.b_type);
  task.d = plan.d + (b0 * g.d_batch0 + b1 * g.d_batch1) * sizeOf(g.d_type);
  task.bias = plan.bias;
  task.m0 = bound(i, plan.partsM, g.m, plan.kernels->mr);
  task.m1 = bound(i + 1, plan.partsM, g.m, plan.kernels->mr);
  task.n0 = bound(j, plan.partsN, g.n, plan.kernels->nr);
  task.n1 = bound(j + 1, plan.partsN, g.n, plan.kernels->nr);
  task.gather = plan.gather;
  if (task.m0 < task.m1 && task.n0 < task.n1)
    g.a_type == MPT_FLOAT64 ? gemmF64(task)
                            : plan.kernels->run(task, static_cast<float *>(scratch.get(plan.kernels->scratchBytes)));
}

mpt_status check(const mpt_gemm_desc &g) {
  auto narrow = [](int64_t t) {
    return t == MPT_FLOAT32 || t == MPT_FLOAT16 || t == MPT_BFLOAT16 || t == MPT_FLOAT8E4M3FN || t == MPT_FLOAT8E5M2;
  };
  bool wide = g.a_type == MPT_FLOAT64 && g.b_type == MPT_FLOAT64 && g.d_type == MPT_FLOAT64;
  bool output = g.d_type == MPT_FLOAT32 || g.d_type == MPT_FLOAT16 || g.d_type == MPT_BFLOAT16;
  if (!wide && !(narrow(g.a_type) && narrow(g.b_type) && output))
    return fail(MPT_UNSUPPORTED, "gemm: no kernel for %s x %s -> %s", nameOf(g.a_type), nameOf(g.b_type),
                nameOf(g.d_type));
  bool bias = g.bias_type == MPT_FLOAT32 || g.bias_type == MPT_FLOAT16 || g.bias_type == MPT_BFLOAT16 ||
              (wide && g.bias_type == MPT_FLOAT64);
  if (g.flags & MPT_GEMM_BIAS && !bias)
    return fail(MPT_UNSUPPORTED, "gemm: no kernel for a %s bias", nameOf(g.bias_type));
  if (g.flags & MPT_GEMM_SCALE && ((g.flags & ~inputFlags) != MPT_GEMM_SCALE || g.bias_type != MPT_FLOAT32))
    return fail(MPT_UNSUPPORTED, "gemm: expected a float32 scale and no other flag, got a %s one and flags %lld",
                nameOf(g.bias_type), static_cast<long long>(g.flags));
  if (g.flags & MPT_GEMM_TWO_CHAINS && !(g.flags & MPT_GEMM_ORDERED && hasBf16(g, g.a_type) && hasBf16(g, g.b_type)))
    return fail(MPT_INVALID_ARGUMENT, "gemm: expected ordered sums of bfloat16 operands in two chains, got %s x %s",
                nameOf(g.a_type), nameOf(g.b_type));
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch0 < 0 || g.batch1 < 0)
    return fail(MPT_INVALID_ARGUMENT, "gemm: negative extent");
  return MPT_OK;
}

} // namespace

int32_t mpt::rt::runOwnGemm(mpt_exec *exec, const mpt_gemm_desc &desc, const void *a, const void *b, const void *bias,
                            void *d, const Gather *gather) {
  Plan plan{desc,
            static_cast<const char *>(a),
            static_cast<const char *>(b),
            bias,
            static_cast<char *>(d),
            &gemmKernels(desc, gather),
            gather,
            0,
            1,
            1,
            0,
            false};
  split(plan, threadsOf(exec));
  runTasks(
      static_cast<int>(plan.tasks),
      [](void *p, int t) {
        auto &plan = *static_cast<Plan *>(p);
        if (plan.desc.a_type != MPT_FLOAT64 && !scratch.get(plan.kernels->scratchBytes)) {
          __atomic_store_n(&plan.outOfMemory, true, __ATOMIC_RELAXED);
          return;
        }
        for (int64_t u = plan.units * t / plan.tasks, e = plan.units * (t + 1) / plan.tasks; u < e; ++u)
          runUnit(plan, u);
      },
      &plan);
  return plan.outOfMemory ? fail(MPT_OUT_OF_MEMORY, "gemm: no memory to pack the operands") : MPT_OK;
}

extern "C" int32_t mpt_rt_gemm(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                               const void *bias, void *d) {
  ProfiledCall call(exec);
  if (mpt_status status = check(*desc))
    return status;
  mpt_gemm_desc g = *desc;
  if (!settleStrides(g))
    return fail(MPT_UNSUPPORTED, "gemm: expected a row or column stride of 1 for each matrix");
  if (g.m * g.n * g.batch0 * g.batch1 == 0)
    return MPT_OK;
  foldBatch(g);
  if (g.flags & MPT_GEMM_SCALE) {
    g.alpha *= *static_cast<const float *>(bias);
    g.flags &= inputFlags;
    return runOwnGemm(exec, g, a, b, nullptr, d);
  }
  return runOwnGemm(exec, g, a, b, bias, d);
}
