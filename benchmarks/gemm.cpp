// SPDX-License-Identifier: Apache-2.0
// The runtime's GEMM in FP32, FP16, BF16 and E4M3 against oneDNN's: rounds interleaved, median CPU time of one thread.
#include "cpu/Gemm.h"
#include "core/Context.h"
#include "core/Float.h"
#include "core/Types.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <string>
#include <vector>

extern "C" void omp_set_num_threads(int);

namespace {

using namespace mpt::rt;

struct Case {
  const char *what;
  int64_t batch, m, n, k;
  bool transposeA, transposeB; // A stored k x m, B stored n x k
};

const Case cases[] = {
    {"square", 1, 512, 512, 512, false, false},
    {"square", 1, 1024, 1024, 1024, false, false},
    {"bert projection", 1, 512, 768, 768, false, true},
    {"bert feed-forward", 1, 512, 3072, 768, false, true},
    {"bert feed-forward", 1, 512, 768, 3072, false, true},
    {"bert weight gradient", 1, 768, 768, 512, true, false},
    {"mlp", 1, 256, 2048, 2048, false, true},
    {"mlp weight gradient", 1, 2048, 2048, 256, true, false},
    {"classifier", 1, 256, 10, 2048, false, true},
    {"attention scores", 48, 128, 128, 64, false, true},
    {"attention values", 48, 128, 64, 128, false, false},
    {"attention, transposed", 48, 128, 64, 128, true, false},
};

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Buffers {
  std::vector<float> f32;
  std::vector<uint16_t> f16, bf16;
  std::vector<uint8_t> e4m3;
  explicit Buffers(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      float x = static_cast<float>(rand() % 2001 - 1000) / 1000;
      f32.push_back(x);
      f16.push_back(toF16(x));
      bf16.push_back(toBF16(x));
      e4m3.push_back(toE4M3FN(x));
    }
  }
  void *as(int64_t dtype) {
    return dtype == MPT_FLOAT32        ? static_cast<void *>(f32.data())
           : dtype == MPT_FLOAT16      ? static_cast<void *>(f16.data())
           : dtype == MPT_FLOAT8E4M3FN ? static_cast<void *>(e4m3.data())
                                       : static_cast<void *>(bf16.data());
  }
};

mpt_gemm_desc describe(const Case &c, int64_t in, int64_t out) {
  mpt_gemm_desc g{};
  g.m = c.m, g.n = c.n, g.k = c.k;
  g.batch0 = c.batch, g.batch1 = 1;
  g.a_type = g.b_type = in, g.d_type = out;
  g.a_batch0 = c.m * c.k, g.b_batch0 = c.k * c.n, g.d_batch0 = c.m * c.n;
  g.a_row = c.transposeA ? 1 : c.k, g.a_col = c.transposeA ? c.m : 1;
  g.b_row = c.transposeB ? 1 : c.n, g.b_col = c.transposeB ? c.k : 1;
  g.d_row = c.n, g.d_col = 1;
  g.alpha = 1;
  return g;
}

std::function<void()> oneDnn(const Case &c, dnnl::memory::data_type type, void *a, void *b, void *d) {
  using namespace dnnl;
  static engine cpu(engine::kind::cpu, 0);
  static stream queue(cpu);
  using Dims = memory::dims;
  memory::desc ma({c.batch, c.m, c.k}, type, c.transposeA ? Dims{c.m * c.k, 1, c.m} : Dims{c.m * c.k, c.k, 1});
  memory::desc mb({c.batch, c.k, c.n}, type, c.transposeB ? Dims{c.k * c.n, 1, c.k} : Dims{c.k * c.n, c.n, 1});
  memory::desc md({c.batch, c.m, c.n}, type, Dims{c.m * c.n, c.n, 1});
  matmul::primitive_desc desc(cpu, ma, mb, md, {}, true);
  if (!desc)
    return nullptr; // oneDNN has no such GEMM on this processor
  matmul product(desc);
  memory xa(ma, cpu, a), xb(mb, cpu, b), xd(md, cpu, d);
  return [=]() mutable {
    product.execute(queue, {{DNNL_ARG_SRC, xa}, {DNNL_ARG_WEIGHTS, xb}, {DNNL_ARG_DST, xd}});
    queue.wait();
  };
}

} // namespace

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 15;
  omp_set_num_threads(1);
  printf("kernel %s; GFLOP/s of one core, and ours over oneDNN's f32\n", gemmKernels().name);
  printf("%-24s %5s %5s %5s %5s | %8s %8s %8s %8s %8s | %8s %8s | %5s %5s %5s %5s\n", "case", "batch", "m", "n", "k",
         "our f32", "our f16", "our bf16", "our e4m3", "mpt_rt", "dnn f32", "dnn bf16", "f32", "f16", "bf16", "e4m3");
  for (const Case &c : cases) {
    Buffers a(c.batch * c.m * c.k), b(c.batch * c.k * c.n), d(c.batch * c.m * c.n);
    Context context;
    mpt_exec exec{};
    exec.runtime = &context;
    context.sites.resize(1);
    void *scratch = aligned_alloc(4096, static_cast<size_t>((gemmKernels().scratchBytes + 4095) / 4096 * 4096));
    std::vector<std::function<void()>> runs;
    for (int64_t type : {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16, MPT_FLOAT8E4M3FN}) {
      int64_t out = type == MPT_FLOAT8E4M3FN ? MPT_BFLOAT16 : type;
      runs.push_back([&, type, out, g = describe(c, type, out)] {
        for (int64_t i = 0; i < c.batch; ++i) {
          auto at = [&](void *p, int64_t stride, int64_t of) {
            return static_cast<char *>(p) + i * stride * sizeOf(of);
          };
          GemmTask task{&g,
                        at(a.as(type), g.a_batch0, type),
                        at(b.as(type), g.b_batch0, type),
                        nullptr,
                        at(d.as(out), g.d_batch0, out),
                        0,
                        c.m,
                        0,
                        c.n};
          gemmKernels(g, nullptr).run(task, static_cast<float *>(scratch));
        }
      });
    }
    runs.push_back([&, g = describe(c, MPT_FLOAT32, MPT_FLOAT32)] {
      mpt_rt_gemm(&exec, 0, &g, a.as(MPT_FLOAT32), b.as(MPT_FLOAT32), nullptr, d.as(MPT_FLOAT32));
    });
    runs.push_back(oneDnn(c, dnnl::memory::data_type::f32, a.as(1), b.as(1), d.as(1)));
    runs.push_back(oneDnn(c, dnnl::memory::data_type::bf16, a.as(16), b.as(16), d.as(16)));
    double flops = 2.0 * static_cast<double>(c.batch * c.m * c.n * c.k);
    int repeat = std::max(1, static_cast<int>(2e8 / flops));
    std::vector<std::vector<double>> times(runs.size());
    for (int r = -1; r < rounds; ++r)
      for (size_t i = 0; i < runs.size(); ++i) {
        if (!runs[i])
          continue;
        double begin = now();
        for (int q = 0; q < repeat; ++q)
          runs[i]();
        if (r >= 0)
          times[i].push_back((now() - begin) / repeat);
      }
    std::vector<double> rate;
    for (auto &t : times) {
      std::sort(t.begin(), t.end());
      rate.push_back(t.empty() ? 0 : flops / t[t.size() / 2] * 1e-9);
    }
    printf("%-24s %5ld %5ld %5ld %5ld | %8.1f %8.1f %8.1f %8.1f %8.1f | %8.1f %8.1f | %5.2f %5.2f %5.2f %5.2f\n",
           c.what, static_cast<long>(c.batch), static_cast<long>(c.m), static_cast<long>(c.n), static_cast<long>(c.k),
           rate[0], rate[1], rate[2], rate[3], rate[4], rate[5], rate[6], rate[0] / rate[5], rate[1] / rate[5],
           rate[2] / rate[5], rate[3] / rate[5]);
    fflush(stdout);
    free(scratch);
  }
}
