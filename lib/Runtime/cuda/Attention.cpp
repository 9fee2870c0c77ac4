// SPDX-License-Identifier: Apache-2.0
// mpt_cuda_attention: through cuDNN's fused engines where it has one, else as GEMMs of some heads at a time with
// kernels between them. Where heads share keys, kernels in tiles instead of GEMMs; with dropout, always.
#include "cuda/AttentionGraph.h"
#include "cuda/AttentionTiles.h"
#include "cuda/Blas.h"
#include "cuda/Convolutions.h"
#include "cuda/Gemm.h"

#include "core/Types.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace mpt::rt;

namespace {

constexpr int64_t lanes = 32;

struct AttentionSite : SiteCache {
  mpt_attention_desc desc;
  std::shared_ptr<GraphPlan> plan; // cuDNN's
  bool planned = false;
  int64_t batches = 0, heads = 0; // of a chunk: all heads of several batches, or some heads of one
  std::unique_ptr<Memory> geometry;
  std::unique_ptr<SiteCache> gemms[5];
  std::unique_ptr<AttentionByTiles> tiles;
};

mpt_status validate(const mpt_attention_desc &d) {
  auto number = [](int64_t n) { return static_cast<long long>(n); };
  if (d.type != MPT_FLOAT16 && d.type != MPT_BFLOAT16)
    return fail(MPT_UNSUPPORTED, "attention: expected operands of f16 or bf16, got %s", nameOf(d.type));
  if (d.bias_type && !suffixOf(d.bias_type))
    return fail(MPT_UNSUPPORTED, "attention: no kernel for a bias of %s", nameOf(d.bias_type));
  for (int64_t extent : {d.batch, d.heads, d.kv_heads, d.queries, d.keys, d.depth, d.value_depth})
    if (extent <= 0)
      return fail(MPT_INVALID_ARGUMENT, "attention: expected positive extents, got %lld", number(extent));
  if (d.heads % d.kv_heads)
    return fail(MPT_INVALID_ARGUMENT, "attention: expected heads in a multiple of those of keys, got %lld and %lld",
                number(d.heads), number(d.kv_heads));
  return MPT_OK;
}

/// The largest divisor of `extent` that is no more than `most`.
int64_t divisor(int64_t extent, int64_t most) {
  for (int64_t n = std::min(extent, most); n > 1; --n)
    if (extent % n == 0)
      return n;
  return 1;
}

/// Attention as GEMMs; pointers as planAttention or planAttentionGradient has them.
class AttentionByGemms {
public:
  AttentionByGemms(const mpt_exec *exec, AttentionSite &site, const std::vector<void *> &pointers)
      : exec(exec), device(deviceOf(exec)), site(site), d(site.desc), p(pointers), backward(pointers.size() > 6) {}
  mpt_status run();

private:
  mpt_status prepare();
  mpt_status chunk(int64_t batch, int64_t head);
  int64_t bytesOfHead() const {
    int64_t rows = d.queries * d.keys;
    return backward ? rows * 12 : rows * 6 + d.queries * lanes * 8;
  }
  static uint8_t *at(void *tensor, int64_t elements, int64_t size) {
    return static_cast<uint8_t *>(tensor) + elements * size;
  }
  /// Where a chunk's part of a tensor with 16-bit elements starts.
  uint8_t *part(void *tensor, const int64_t (&strides)[3], int64_t batch, int64_t head) const {
    return at(tensor, batch * strides[0] + head * strides[1], 2);
  }
  mpt_status launch(const std::string &kernel, const std::vector<void *> &args);

  /// A matrix for every head: its address, strides of batch, head, row and column, type.
  struct Matrix {
    void *data;
    int64_t batch, head, row, col, type;
  };
  Matrix matrix(void *data, const int64_t (&strides)[3]) const {
    return {data, strides[0], strides[1], strides[2], 1, d.type};
  }
  /// [queries, keys] in scratch.
  Matrix square(void *data, int64_t type) const {
    int64_t one = d.queries * d.keys;
    return {data, site.heads * one, one, d.keys, 1, type};
  }
  static Matrix transposed(Matrix m) {
    std::swap(m.row, m.col);
    return m;
  }
  mpt_status multiply(int slot, int64_t m, int64_t n, int64_t k, const Matrix &a, const Matrix &b, const Matrix &result,
                      double alpha);

  const mpt_exec *exec;
  CudaDevice &device;
  AttentionSite &site;
  const mpt_attention_desc &d;
  const std::vector<void *> &p;
  bool backward;
  uint8_t *scratch = nullptr;
};

mpt_status AttentionByGemms::launch(const std::string &kernel, const std::vector<void *> &args) {
  return device.launchNamed("attention", kernel, args.data());
}

mpt_status AttentionByGemms::multiply(int slot, int64_t m, int64_t n, int64_t k, const Matrix &a, const Matrix &b,
                                      const Matrix &result, double alpha) {
  mpt_gemm_desc g{};
  g.m = m, g.n = n, g.k = k;
  g.batch0 = site.batches, g.batch1 = site.heads;
  g.a_type = a.type, g.b_type = b.type, g.d_type = result.type;
  g.a_batch0 = a.batch, g.a_batch1 = a.head, g.a_row = a.row, g.a_col = a.col;
  g.b_batch0 = b.batch, g.b_batch1 = b.head, g.b_row = b.row, g.b_col = b.col;
  g.d_batch0 = result.batch, g.d_batch1 = result.head, g.d_row = result.row, g.d_col = result.col;
  g.alpha = alpha;
  return gemm(exec, site.gemms[slot], g, a.data, b.data, nullptr, result.data);
}

mpt_status AttentionByGemms::prepare() {
  int64_t heads = std::max<int64_t>(1, device.options.scoreBytes / bytesOfHead());
  site.heads = divisor(d.heads, heads);
  site.batches = site.heads == d.heads ? divisor(d.batch, heads / d.heads) : 1;
  AttentionGeometry g = geometryOf(d);
  g.rows = site.batches * site.heads * d.queries;
  g.parts = g.rows * lanes;
  g.heads = site.heads;
  return device.place("attention", &g, sizeof g, site.geometry);
}

mpt_status AttentionByGemms::chunk(int64_t batch, int64_t head) {
  const int64_t squares = site.batches * site.heads * d.queries * d.keys;
  auto rounded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  uint8_t *scores = scratch + BlasLibrary::workspaceBytes, *probabilities = scores + rounded(squares * 4);
  uint8_t *rest = probabilities + rounded(squares * 2);
  uint8_t *geometry = site.geometry->start;
  std::string type = suffixOf(d.type), biased = d.bias_type ? std::string("_") + suffixOf(d.bias_type) : "";
  void *bias = nullptr;
  if (d.bias_type)
    bias = at(p[3], batch * d.bias_strides[0] + head * d.bias_strides[1], sizeOf(d.bias_type));
  uint8_t *stats = at(p[5], (batch * d.heads + head) * d.queries, 4);
  Matrix q = matrix(part(p[0], d.q_strides, batch, head), d.q_strides);
  Matrix k = matrix(part(p[1], d.k_strides, batch, head), d.k_strides);
  Matrix v = matrix(part(p[2], d.v_strides, batch, head), d.v_strides);
  Matrix o = matrix(part(p[4], d.o_strides, batch, head), d.o_strides);
  Matrix s = square(scores, MPT_FLOAT32), probability = square(probabilities, d.type);
  if (mpt_status status = multiply(0, d.queries, d.keys, d.depth, q, transposed(k), s, d.scale))
    return status;
  // Kernels that read scores have the bias, where there is one, before their geometry.
  auto row = [&](const std::string &kernel, std::vector<void *> args) {
    if (d.bias_type)
      args.push_back(bias);
    args.push_back(geometry);
    return launch(kernel + biased, args);
  };
  if (!backward) {
    if (mpt_status status = row("mpt_attention_parts", {scores, rest}))
      return status;
    if (mpt_status status = launch("mpt_attention_stats", {rest, stats, geometry}))
      return status;
    if (mpt_status status = row("mpt_attention_probabilities_" + type, {scores, stats, probabilities}))
      return status;
    return multiply(1, d.queries, d.value_depth, d.keys, probability, v, o, 1);
  }
  uint8_t *gradients = rest + rounded(squares * 4), *delta = gradients + rounded(squares * 2);
  Matrix dO = matrix(part(p[6], d.do_strides, batch, head), d.do_strides);
  Matrix dp = square(rest, MPT_FLOAT32), ds = square(gradients, d.type);
  if (mpt_status status = multiply(1, d.queries, d.keys, d.value_depth, dO, transposed(v), dp, 1))
    return status;
  if (mpt_status status = launch("mpt_attention_delta_" + type, {o.data, dO.data, delta, geometry}))
    return status;
  if (mpt_status status = row("mpt_attention_gradient_" + type, {scores, stats, rest, delta, probabilities, gradients}))
    return status;
  if (mpt_status status = multiply(2, d.keys, d.value_depth, d.queries, transposed(probability), dO,
                                   matrix(part(p[9], d.dv_strides, batch, head), d.dv_strides), 1))
    return status;
  if (mpt_status status = multiply(3, d.queries, d.depth, d.keys, ds, k,
                                   matrix(part(p[7], d.dq_strides, batch, head), d.dq_strides), d.scale))
    return status;
  return multiply(4, d.keys, d.depth, d.queries, transposed(ds), q,
                  matrix(part(p[8], d.dk_strides, batch, head), d.dk_strides), d.scale);
}

mpt_status AttentionByGemms::run() {
  if (!site.geometry)
    if (mpt_status status = prepare())
      return status;
  const int64_t count = site.batches * site.heads;
  scratch = device.scratch(BlasLibrary::workspaceBytes + count * (bytesOfHead() + d.queries * 4) + 5 * 256);
  if (!scratch)
    return MPT_OUT_OF_MEMORY;
  for (int64_t batch = 0; batch < d.batch; batch += site.batches)
    for (int64_t head = 0; head < d.heads; head += site.heads)
      if (mpt_status status = chunk(batch, head))
        return status;
  return MPT_OK;
}

/// How probabilities are dropped; null pointers where they are not.
struct Dropping {
  const mpt_attention_dropout *dropout = nullptr;
  void *key = nullptr;
};

bool isGradient(const std::vector<void *> &pointers) { return pointers.size() > 6; }

/// Says which plans of cuDNN's `attend` will ask for.
mpt_status expect(CudaDevice &device, const mpt_attention_desc &d, const std::vector<void *> &pointers,
                  Dropping dropping) {
  if (mpt_status status = validate(d))
    return status;
  if (ConvLibrary *library = dropping.dropout ? nullptr : device.convolutions())
    expectAttention(device, *library, d, pointers, isGradient(pointers));
  return MPT_OK;
}

mpt_status attend(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_attention_desc &d,
                  const std::vector<void *> &pointers, Dropping dropping) {
  if (mpt_status status = validate(d))
    return status;
  CudaDevice &device = deviceOf(exec);
  const bool gradient = isGradient(pointers);
  auto *site = static_cast<AttentionSite *>(slot.get());
  if (!site || memcmp(&site->desc, &d, sizeof d) != 0) {
    auto fresh = std::make_unique<AttentionSite>();
    fresh->desc = d;
    site = fresh.get();
    slot = std::move(fresh);
  }
  ConvLibrary *library = dropping.dropout ? nullptr : device.convolutions();
  if (library && !site->planned && !device.capturing) {
    site->planned = true;
    site->plan =
        gradient ? planAttentionGradient(device, *library, d, pointers) : planAttention(device, *library, d, pointers);
  }
  const bool byTiles = !site->plan && mpt::attention::wantsTiles(d, dropping.dropout != nullptr);
  static_cast<Context *>(exec->runtime)->way = site->plan ? "cuDNN" : byTiles ? "tiles" : "GEMMs";
  if (byTiles) {
    if (!site->tiles)
      if (mpt_status status = AttentionByTiles::make(device, d, dropping.dropout, gradient, site->tiles))
        return status;
    return site->tiles->run(device, pointers, dropping.key);
  }
  if (!site->plan && (dropping.dropout || d.kv_heads != d.heads))
    return fail(MPT_UNSUPPORTED, "attention: expected depths of at most %lld in eights, got %lld and %lld",
                static_cast<long long>(mpt::attention::mostDepth), static_cast<long long>(d.depth),
                static_cast<long long>(d.value_depth));
  return site->plan ? site->plan->run(device, pointers) : AttentionByGemms(exec, *site, pointers).run();
}

int32_t attendAt(mpt_exec *exec, int64_t site, const mpt_attention_desc &d, const std::vector<void *> &pointers,
                 Dropping dropping = {}) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  return call.run([&] { return attend(exec, slot ? *slot : none, d, pointers, dropping); },
                  [&] { return expect(call.device, d, pointers, dropping); });
}

void *writable(const void *p) { return const_cast<void *>(p); }

} // namespace

extern "C" int32_t mpt_cuda_attention(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc, const void *q,
                                      const void *k, const void *v, const void *bias, void *o, void *stats) {
  return attendAt(exec, site, *desc, {writable(q), writable(k), writable(v), writable(bias), o, stats});
}

extern "C" int32_t mpt_cuda_attention_gradient(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc,
                                               const void *q, const void *k, const void *v, const void *bias,
                                               const void *o, const void *stats, const void *d_o, void *dq, void *dk,
                                               void *dv) {
  return attendAt(
      exec, site, *desc,
      {writable(q), writable(k), writable(v), writable(bias), writable(o), writable(stats), writable(d_o), dq, dk, dv});
}

extern "C" int32_t mpt_cuda_attention_dropout(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc,
                                              const mpt_attention_dropout *dropout, const void *key, const void *q,
                                              const void *k, const void *v, const void *bias, void *o, void *stats) {
  return attendAt(exec, site, *desc, {writable(q), writable(k), writable(v), writable(bias), o, stats},
                  {dropout, writable(key)});
}

extern "C" int32_t mpt_cuda_attention_gradient_dropout(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc,
                                                       const mpt_attention_dropout *dropout, const void *key,
                                                       const void *q, const void *k, const void *v, const void *bias,
                                                       const void *o, const void *stats, const void *d_o, void *dq,
                                                       void *dk, void *dv) {
  return attendAt(
      exec, site, *desc,
      {writable(q), writable(k), writable(v), writable(bias), writable(o), writable(stats), writable(d_o), dq, dk, dv},
      {dropout, writable(key)});
}
