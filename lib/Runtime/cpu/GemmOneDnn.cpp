// SPDX-License-Identifier: Apache-2.0
// GEMMs that oneDNN computes faster than our kernels: BF16 where the processor multiplies it natively. In FP32 the
// two are equal within measurement noise (benchmarks/gemm.cpp), and ours are bitwise identical for every thread count.
#include "cpu/Gemm.h"
#include "cpu/OneDnn.h"

#include "core/Types.h"

#include <cstring>
#include <exception>

using dnnl::memory;

namespace mpt::rt {
namespace {

struct MatmulSite : SiteCache {
  mpt_gemm_desc desc;
  int threads;
  bool usable = false; // oneDNN has a fast kernel for it
  dnnl::matmul primitive;
  memory::desc a, b, d, bias, scratchpad;
};

/// Below as many products a call of oneDNN's takes longer than the GEMM by a kernel of ours: some 4 us.
constexpr int64_t kFewestProducts = 1 << 17;

bool worthTrying(const mpt_gemm_desc &g) {
  bool bf16 = g.a_type == MPT_BFLOAT16 && g.b_type == MPT_BFLOAT16 && oneDnnNative(MPT_BFLOAT16) &&
              (g.d_type == MPT_BFLOAT16 || g.d_type == MPT_FLOAT32);
  bool bias = g.flags & MPT_GEMM_BIAS;
  bool biasFits = !bias || g.bias_type == MPT_FLOAT32 || g.bias_type == g.d_type;
  // oneDNN adds the bias before it scales, does not round between steps, and its ReLU turns NaN into 0, which would
  // hide it from the finite check.
  bool exact = !(g.flags & (MPT_GEMM_RELU | MPT_GEMM_ROUND)) && !(bias && g.alpha != 1);
  return bf16 && biasFits && exact && g.batch0 * g.batch1 * g.m * g.n * g.k >= kFewestProducts;
}

/// A batch of strided matrices; a zero batch stride is an extent of one, which broadcasts.
memory::desc matrices(const mpt_gemm_desc &g, int64_t rows, int64_t cols, int64_t dtype, int64_t batch0, int64_t batch1,
                      int64_t row, int64_t col) {
  int64_t size = rows * cols;
  memory::dims dims{batch0 ? g.batch0 : 1, batch1 ? g.batch1 : 1, rows, cols};
  return memory::desc(dims, oneDnnType(dtype), {batch0 ? batch0 : size, batch1 ? batch1 : size, row, col});
}

void build(MatmulSite &site) {
  const mpt_gemm_desc &g = site.desc;
  if (g.batch0 * g.batch1 == 1) {
    site.a = memory::desc({g.m, g.k}, oneDnnType(g.a_type), memory::dims{g.a_row, g.a_col});
    site.b = memory::desc({g.k, g.n}, oneDnnType(g.b_type), memory::dims{g.b_row, g.b_col});
    site.d = memory::desc({g.m, g.n}, oneDnnType(g.d_type), memory::dims{g.d_row, g.d_col});
  } else {
    site.a = matrices(g, g.m, g.k, g.a_type, g.batch0 == 1 ? 0 : g.a_batch0, g.batch1 == 1 ? 0 : g.a_batch1, g.a_row,
                      g.a_col);
    site.b = matrices(g, g.k, g.n, g.b_type, g.batch0 == 1 ? 0 : g.b_batch0, g.batch1 == 1 ? 0 : g.b_batch1, g.b_row,
                      g.b_col);
    site.d = matrices(g, g.m, g.n, g.d_type, g.batch0 == 1 ? 0 : g.d_batch0, g.batch1 == 1 ? 0 : g.d_batch1, g.d_row,
                      g.d_col);
  }
  if (g.flags & MPT_GEMM_BIAS) {
    memory::dims dims(site.d.get_dims().size(), 1), strides(dims.size(), g.n);
    dims.back() = g.n;
    strides.back() = 1;
    site.bias = memory::desc(dims, oneDnnType(g.bias_type), strides);
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (g.alpha != 1)
    ops.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<float>(g.alpha), 0);
  if (g.flags & MPT_GEMM_GELU_ERF)
    ops.append_eltwise(dnnl::algorithm::eltwise_gelu_erf, 0, 0);
  if (g.flags & MPT_GEMM_GELU_TANH)
    ops.append_eltwise(dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
  if (g.flags & MPT_GEMM_ACCUMULATE)
    ops.append_sum(1);
  attr.set_post_ops(ops);
  dnnl::matmul::primitive_desc pd(cpuEngine(), site.a, site.b, site.bias, site.d, attr, true);
  // Batches of strided matrices fall to GEMMs one by one (gemm:jit), which are slower than our kernels.
  site.usable = pd && !strstr(pd.impl_info_str(), "ref") && !strstr(pd.impl_info_str(), "gemm:");
  if (!site.usable)
    return;
  site.scratchpad = pd.scratchpad_desc();
  site.primitive = dnnl::matmul(pd);
}

} // namespace

bool gemmOneDnn(mpt_exec *exec, int64_t number, const mpt_gemm_desc &desc, const void *a, const void *b,
                const void *bias, void *d) {
  if (!worthTrying(desc))
    return false;
  try {
    ThreadScope threads(exec);
    std::unique_ptr<SiteCache> local, *slot = slotOf(exec, number);
    if (!slot)
      slot = &local;
    auto *site = static_cast<MatmulSite *>(slot->get());
    if (!site || site->threads != threadsOf(exec) || !hasSameBits(site->desc, desc)) {
      auto fresh = std::make_unique<MatmulSite>();
      fresh->desc = desc;
      fresh->threads = threadsOf(exec);
      build(*fresh);
      site = fresh.get();
      *slot = std::move(fresh);
    }
    if (!site->usable)
      return false;
    ScratchLease scratch(exec);
    void *pad = scratch.get(static_cast<int64_t>(site->scratchpad.get_size()) + 64);
    if (!pad)
      return false;
    dnnl::engine &engine = cpuEngine();
    dnnl::stream stream(engine);
    std::unordered_map<int, memory> args{{DNNL_ARG_SRC, memory(site->a, engine, const_cast<void *>(a))},
                                         {DNNL_ARG_WEIGHTS, memory(site->b, engine, const_cast<void *>(b))},
                                         {DNNL_ARG_DST, memory(site->d, engine, d)},
                                         {DNNL_ARG_SCRATCHPAD, memory(site->scratchpad, engine, pad)}};
    if (desc.flags & MPT_GEMM_BIAS)
      args.emplace(DNNL_ARG_BIAS, memory(site->bias, engine, const_cast<void *>(bias)));
    site->primitive.execute(stream, args);
    stream.wait();
    return true;
  } catch (const std::exception &) {
    return false; // our kernels take it
  }
}

} // namespace mpt::rt
