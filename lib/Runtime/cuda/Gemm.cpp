// SPDX-License-Identifier: Apache-2.0
// mpt_cuda_gemm: GEMMs through cuBLASLt, with the algorithm that measured fastest.
#include "cuda/Gemm.h"
#include "cuda/Blas.h"

#include "core/Types.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

using namespace mpt::rt;

namespace {

int dataType(int64_t dtype) {
  switch (dtype) {
  case MPT_FLOAT32:
    return lt::R32F;
  case MPT_FLOAT64:
    return lt::R64F;
  case MPT_FLOAT16:
    return lt::R16F;
  case MPT_BFLOAT16:
    return lt::R16BF;
  case MPT_FLOAT8E4M3FN:
    return lt::R8FE4M3;
  case MPT_FLOAT8E5M2:
    return lt::R8FE5M2;
  default:
    return -1;
  }
}

/// A matrix as cuBLASLt sees it: column-major, so that our row-major matrices are their own transposes there.
struct Operand {
  int64_t type, rows, cols, lead, batch0, batch1; // batch strides
  int operation = lt::N;
};

/// Greatest power of two, up to 256 bytes, that divides an address and all strides between matrices.
uint32_t alignmentOf(const void *p, const Operand &m) {
  int64_t size = sizeOf(m.type);
  uint64_t bits = reinterpret_cast<uint64_t>(p) | static_cast<uint64_t>(m.batch0 * size) |
                  static_cast<uint64_t>(m.batch1 * size) | static_cast<uint64_t>(m.lead * size) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

constexpr int searchRounds = 3;
constexpr size_t quickAlgorithms = 8, allAlgorithms = 24; // that cuBLASLt is asked for

struct GemmSite : SiteCache {
  explicit GemmSite(const lt::Functions &api) : api(api) {}
  ~GemmSite() override {
    for (lt::Layout layout : {a, b, d})
      if (layout)
        api.MatrixLayoutDestroy(layout);
    if (matmul)
      api.MatmulDescDestroy(matmul);
  }
  const lt::Functions &api;
  mpt_gemm_desc desc;
  uint32_t alignments[3];
  const void *bias;
  OperandScales scales;
  Chain chain;
  bool tf32 = false;                // operands are FP32, and rounded to TF32
  bool fastSums = false;            // CUBLASLT_MATMUL_DESC_FAST_ACCUM
  std::unique_ptr<ApartGemm> apart; // for chained flags
  bool isApart = false;             // the better way, or the only one
  lt::MatmulDesc matmul = nullptr;
  lt::Layout a = nullptr, b = nullptr, d = nullptr;
  lt::Heuristic chosen;
  bool remembered = false;                   // chosen by an earlier process, not tried in this one
  int64_t calls = 1, strides[3] = {0, 0, 0}; // calls: one a matrix of the batch that the strided one does not cover
};

mpt_status ltCheck(lt::Status status, const char *what) {
  return status == lt::Success ? MPT_OK : fail(MPT_INTERNAL, "%s: cuBLASLt status %d", what, status);
}

/// Our a and b trade places: the column-major GEMM is the transpose of ours.
void operandsOf(const mpt_gemm_desc &g, Operand &a, Operand &b, Operand &d) {
  auto transposed = [](int64_t type, int64_t rows, int64_t cols, int64_t row, int64_t col, int64_t batch0,
                       int64_t batch1) {
    Operand m{type, cols, rows, row, batch0, batch1, lt::N};
    if (col != 1) { // contiguous along our rows' index: seen column-major it is not transposed
      m.rows = rows;
      m.cols = cols;
      m.lead = col;
      m.operation = lt::T;
    }
    m.lead = std::max(m.lead, m.rows);
    return m;
  };
  a = transposed(g.b_type, g.k, g.n, g.b_row, g.b_col, g.b_batch0, g.b_batch1);
  b = transposed(g.a_type, g.m, g.k, g.a_row, g.a_col, g.a_batch0, g.a_batch1);
  d = transposed(g.d_type, g.m, g.n, g.d_row, 1, g.d_batch0, g.d_batch1);
}

mpt_status epilogueOf(const mpt_gemm_desc &g, int &epilogue) {
  epilogue = 0;
  if (g.flags & MPT_GEMM_BIAS)
    epilogue |= lt::Bias;
  if (g.flags & MPT_GEMM_RELU)
    epilogue |= lt::Relu;
  if (g.flags & MPT_GEMM_GELU_TANH)
    epilogue |= lt::Gelu;
  if (g.flags & MPT_GEMM_KEEP)
    epilogue |= lt::Aux;
  if (g.flags & MPT_GEMM_RELU_GRADIENT)
    epilogue |= lt::ReluGradient;
  if (g.flags & MPT_GEMM_GELU_TANH_GRADIENT)
    epilogue |= lt::GeluGradient;
  if (g.flags & MPT_GEMM_SUM_D)
    epilogue |= lt::SumD;
  // a and b trade places.
  if (g.flags & MPT_GEMM_SUM_A)
    epilogue |= lt::SumB;
  if (g.flags & MPT_GEMM_SUM_B)
    epilogue |= lt::SumA;
  if (g.flags & MPT_GEMM_GELU_ERF)
    return fail(MPT_UNSUPPORTED, "gemm: cuBLASLt has no GELU by erf");
  if (!epilogue)
    epilogue = lt::Default;
  return MPT_OK;
}

int computeTypeOf(const GemmSite &site) {
  if (site.desc.a_type == MPT_FLOAT64)
    return lt::Compute64F;
  return site.tf32 ? lt::Compute32FFromTF32 : lt::Compute32F;
}

/// Descriptions of the GEMM for cuBLASLt.
mpt_status build(GemmSite &site) {
  const mpt_gemm_desc &g = site.desc;
  const lt::Functions &api = site.api;
  Operand a, b, d;
  operandsOf(g, a, b, d);
  // One strided batch where the two dimensions are one; else the smaller of them is walked by calls.
  int64_t batch = g.batch0 * g.batch1;
  Operand *all[] = {&a, &b, &d};
  bool one = g.batch0 == 1 || g.batch1 == 1 ||
             std::all_of(all, all + 3, [&](Operand *m) { return m->batch0 == m->batch1 * g.batch1; });
  int64_t strided[3];
  for (int i = 0; i < 3; ++i) {
    Operand &m = *all[i];
    strided[i] = m.batch1;
    if (one && g.batch1 == 1)
      strided[i] = m.batch0;
    if (!one) {
      bool inner = g.batch1 >= g.batch0; // the strided one
      strided[i] = inner ? m.batch1 : m.batch0;
      site.strides[i] = inner ? m.batch0 : m.batch1;
      batch = std::max(g.batch0, g.batch1);
      site.calls = std::min(g.batch0, g.batch1);
    }
  }
  bool exact = g.a_type == MPT_FLOAT64;
  int epilogue = 0;
  if (mpt_status status = epilogueOf(g, epilogue))
    return status;
  lt::Status status = api.MatmulDescCreate(&site.matmul, computeTypeOf(site), exact ? lt::R64F : lt::R32F);
  auto set = [&](int attribute, const auto &value) {
    if (!status)
      status = api.MatmulDescSetAttribute(site.matmul, attribute, &value, sizeof value);
  };
  set(lt::TransA, a.operation);
  set(lt::TransB, b.operation);
  set(lt::EpilogueAttribute, epilogue);
  if (site.fastSums) {
    constexpr int8_t yes = 1;
    set(lt::FastSums, yes);
  }
  if (g.flags & MPT_GEMM_BIAS) {
    set(lt::BiasPointer, site.bias);
    int type = dataType(g.bias_type);
    set(lt::BiasDataType, type);
  }
  if (site.chain.sums) {
    set(lt::BiasPointer, site.chain.sums);
    int type = dataType(g.bias_type);
    set(lt::BiasDataType, type);
  }
  if (site.chain.aux) {
    constexpr int64_t bits = 128; // of ReLU's mask lie together
    bool mask = (g.flags & (MPT_GEMM_RELU | MPT_GEMM_RELU_GRADIENT)) != 0;
    int64_t lead = mask ? (g.n + bits - 1) / bits * bits : d.lead;
    set(lt::AuxPointer, site.chain.aux);
    set(lt::AuxLead, lead);
  }
  // Ours and theirs trade places here as well.
  if (site.scales.b)
    set(lt::ScaleA, site.scales.b);
  if (site.scales.a)
    set(lt::ScaleB, site.scales.a);
  lt::Layout *layouts[] = {&site.a, &site.b, &site.d};
  for (int i = 0; i < 3; ++i) {
    const Operand &m = *all[i];
    if (!status)
      status = api.MatrixLayoutCreate(layouts[i], dataType(m.type), static_cast<uint64_t>(m.rows),
                                      static_cast<uint64_t>(m.cols), m.lead);
    if (batch > 1) {
      auto count = static_cast<int32_t>(batch);
      if (!status)
        status = api.MatrixLayoutSetAttribute(*layouts[i], lt::BatchCount, &count, sizeof count);
      if (!status)
        status = api.MatrixLayoutSetAttribute(*layouts[i], lt::StridedBatchOffset, &strided[i], sizeof strided[i]);
    }
  }
  return ltCheck(status, "describing a GEMM");
}

/// alpha or beta in the type that scales GEMMs of these types.
struct Scale {
  union {
    float narrow;
    double wide;
  };
  Scale(const mpt_gemm_desc &g, double value) {
    wide = 0;
    if (g.a_type == MPT_FLOAT64)
      wide = value;
    else
      narrow = static_cast<float>(value);
  }
};

mpt_status multiply(CudaDevice &device, BlasLibrary &blas, GemmSite &site, const lt::Heuristic &how, const void *a,
                    const void *b, void *d, lt::Status *raw = nullptr) {
  const mpt_gemm_desc &g = site.desc;
  uint8_t *workspace = device.scratch(BlasLibrary::workspaceBytes);
  if (!workspace)
    return MPT_OUT_OF_MEMORY;
  Scale alpha(g, g.alpha), beta(g, g.flags & MPT_GEMM_ACCUMULATE ? 1 : 0);
  lt::Status status = lt::Success;
  for (int64_t i = 0; i < site.calls && status == lt::Success; ++i) {
    const char *first = static_cast<const char *>(b) + i * site.strides[0] * sizeOf(g.b_type);
    const char *second = static_cast<const char *>(a) + i * site.strides[1] * sizeOf(g.a_type);
    char *out = static_cast<char *>(d) + i * site.strides[2] * sizeOf(g.d_type);
    status = blas.api.Matmul(blas.handle, site.matmul, &alpha, first, site.a, second, site.b, &beta, out, site.d, out,
                             site.d, &how.algorithm, workspace, how.workspace, device.stream);
  }
  if (raw) {
    *raw = status;
    return MPT_OK;
  }
  return ltCheck(status, "gemm");
}

std::string keyOf(const GemmSite &site) {
  std::string key = "gemm " + wordsOf(site.desc);
  if (site.scales.a || site.scales.b)
    key += "scaled,";
  if (site.tf32)
    key += "tf32,";
  if (site.fastSums)
    key += "fast,";
  for (uint32_t alignment : site.alignments)
    key += std::to_string(alignment) + ",";
  for (const void *beside : {site.chain.aux, site.chain.sums})
    if (beside) {
      auto bits = reinterpret_cast<uint64_t>(beside) | 256;
      key += std::to_string(bits & (~bits + 1)) + ",";
    }
  return key;
}

/// The choice for a GEMM that runs apart.
const std::string apart = "apart";

/// An algorithm as a choice's text: bytes of workspace and eight words.
std::string textOf(const lt::Heuristic &how) {
  std::ostringstream text;
  text << std::hex << how.workspace;
  for (uint64_t word : how.algorithm.data)
    text << ' ' << word;
  return text.str();
}

bool readAlgorithm(const std::string &text, lt::Heuristic &out) {
  std::istringstream words(text);
  out = {};
  words >> std::hex >> out.workspace;
  for (uint64_t &word : out.algorithm.data)
    words >> word;
  return words && out.workspace <= static_cast<size_t>(BlasLibrary::workspaceBytes);
}

/// Takes the choice of an earlier process, where there is one that can be read.
bool takeKnown(CudaDevice &device, const BlasLibrary &blas, GemmSite &site, const std::string &key) {
  const std::string *known = device.chosen.find(blas.maker, key, device.options.search);
  const bool hasFailed = site.remembered;
  site.remembered = false;
  if (!known || hasFailed)
    return false;
  site.isApart = site.apart && *known == apart;
  site.remembered = !site.isApart && readAlgorithm(*known, site.chosen);
  return site.isApart || site.remembered;
}

/// cuBLASLt's proposals, the one that it takes for the fastest first.
lt::Status propose(BlasLibrary &blas, const GemmSite &site, std::vector<lt::Heuristic> &found) {
  int count = 0;
  lt::Preference preference = nullptr;
  lt::Status status = blas.api.MatmulPreferenceCreate(&preference);
  auto set = [&](int attribute, const auto &value) {
    if (!status)
      status = blas.api.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  uint64_t workspace = BlasLibrary::workspaceBytes;
  set(lt::MaxWorkspace, workspace);
  // Other schemes add up the parts of K in the result's type, which may have 16 bits.
  uint32_t schemes = lt::SumsInComputeType;
  set(lt::ReductionSchemes, schemes);
  set(lt::AlignmentA, site.alignments[0]);
  set(lt::AlignmentB, site.alignments[1]);
  set(lt::AlignmentC, site.alignments[2]);
  set(lt::AlignmentD, site.alignments[2]);
  if (!status)
    status = blas.api.MatmulAlgoGetHeuristic(blas.handle, site.matmul, site.a, site.b, site.d, site.d, preference,
                                             static_cast<int>(found.size()), found.data(), &count);
  if (preference)
    blas.api.MatmulPreferenceDestroy(preference);
  found.resize(static_cast<size_t>(count));
  return status;
}

/// Takes the fastest of the proposals, measured on the operands themselves, or the GEMM apart where that is faster.
void measure(const mpt_exec *exec, BlasLibrary &blas, GemmSite &site, const std::vector<lt::Heuristic> &found,
             const void *a, const void *b, void *d) {
  CudaDevice &device = deviceOf(exec);
  float best = -1;
  auto isBest = [&](float time) { return time >= 0 && (best < 0 || time < best); };
  for (const lt::Heuristic &how : found) {
    lt::Status tried = how.state;
    float time = tried ? -1 : device.fastest(searchRounds, [&] {
      return !multiply(device, blas, site, how, a, b, d, &tried) && tried == lt::Success;
    });
    if (!isBest(time))
      continue;
    best = time;
    site.chosen = how;
  }
  if (site.apart)
    site.isApart = isBest(device.fastest(
        searchRounds, [&] { return !site.apart->run(exec, a, b, site.bias, d, site.scales, site.chain); }));
}

/// The fastest of cuBLASLt's proposals: measured on the operands themselves, whose result the real GEMM replaces.
/// Chained flags may be faster apart.
mpt_status choose(const mpt_exec *exec, BlasLibrary &blas, GemmSite &site, const void *a, const void *b, void *d) {
  CudaDevice &device = deviceOf(exec);
  const mpt_gemm_desc &g = site.desc;
  const std::string key = keyOf(site);
  const Effort search = device.options.search;
  if (takeKnown(device, blas, site, key))
    return MPT_OK;
  std::vector<lt::Heuristic> found(search == Effort::Full ? allAlgorithms : quickAlgorithms);
  const lt::Status status = propose(blas, site, found);
  const bool hasNone = status == lt::NotSupported || (!status && found.empty());
  site.isApart = site.apart && hasNone;
  if (site.isApart)
    return MPT_OK;
  if (hasNone)
    return fail(MPT_UNSUPPORTED, "gemm: cuBLASLt has no algorithm for %s x %s -> %s, %lld x %lld x %lld",
                nameOf(g.a_type), nameOf(g.b_type), nameOf(g.d_type), static_cast<long long>(g.m),
                static_cast<long long>(g.n), static_cast<long long>(g.k));
  if (status)
    return ltCheck(status, "choosing an algorithm for a GEMM");
  site.chosen = found[0];
  // A sum into d cannot be tried without changing d.
  const bool canMeasure = device.warming && !device.capturing && !(g.flags & MPT_GEMM_ACCUMULATE);
  if (search != Effort::Off && !(canMeasure && (found.size() > 1 || site.apart)))
    return MPT_OK;
  if (search != Effort::Off)
    measure(exec, blas, site, found, a, b, d);
  device.chosen.remember(blas.maker, key, search, site.isApart ? apart : textOf(site.chosen));
  return MPT_OK;
}

/// Flags and pointers of epilogues belong together.
mpt_status checkChain(const mpt_gemm_desc &g, const Chain &chain) {
  constexpr int64_t sums = MPT_GEMM_SUM_A | MPT_GEMM_SUM_B | MPT_GEMM_SUM_D;
  constexpr int64_t gradients = MPT_GEMM_RELU_GRADIENT | MPT_GEMM_GELU_TANH_GRADIENT;
  bool wantsAux = (g.flags & (MPT_GEMM_KEEP | gradients)) != 0, wantsSums = (g.flags & sums) != 0;
  int64_t summed = g.flags & sums;
  if (wantsAux == !chain.aux || wantsSums == !chain.sums || (summed & (summed - 1)) ||
      (wantsSums && (g.flags & MPT_GEMM_BIAS)) || ((summed & MPT_GEMM_SUM_D) && !(g.flags & gradients)) ||
      ((wantsAux || wantsSums) && g.batch0 * g.batch1 > 1))
    return fail(MPT_INVALID_ARGUMENT, "gemm: flags %lld do not go with what is exchanged, or with a batch",
                static_cast<long long>(g.flags));
  return MPT_OK;
}

} // namespace

mpt_status mpt::rt::gemm(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_gemm_desc &g, const void *a,
                         const void *b, const void *bias, void *d, const OperandScales &scales, const Chain &chain) {
  CudaDevice &device = deviceOf(exec);
  for (int64_t type : {g.a_type, g.b_type, g.d_type})
    if (dataType(type) < 0)
      return fail(MPT_UNSUPPORTED, "gemm: no kernel for %s", nameOf(type));
  if ((scales.a || scales.b) && (sizeOf(g.a_type) != 1 || sizeOf(g.b_type) != 1))
    return fail(MPT_INVALID_ARGUMENT, "gemm: expected 8-bit operands for scales, got %s and %s", nameOf(g.a_type),
                nameOf(g.b_type));
  if (mpt_status status = checkChain(g, chain))
    return status;
  if (g.m <= 0 || g.n <= 0 || g.batch0 <= 0 || g.batch1 <= 0)
    return MPT_OK;
  if (g.k <= 0)
    return fail(MPT_UNSUPPORTED, "gemm: expected a sum over at least one term");
  BlasLibrary *blas = device.blas();
  if (!blas)
    return MPT_UNSUPPORTED;
  Operand operands[3];
  operandsOf(g, operands[0], operands[1], operands[2]);
  const void *pointers[] = {b, a, d};
  uint32_t alignments[3];
  for (int i = 0; i < 3; ++i)
    alignments[i] = alignmentOf(pointers[i], operands[i]);
  auto *site = static_cast<GemmSite *>(slot.get());
  if (!site || memcmp(&site->desc, &g, sizeof g) != 0 || memcmp(site->alignments, alignments, sizeof alignments) != 0 ||
      site->bias != bias || site->scales.a != scales.a || site->scales.b != scales.b || site->chain.aux != chain.aux ||
      site->chain.sums != chain.sums) {
    auto fresh = std::make_unique<GemmSite>(blas->api);
    fresh->desc = g;
    memcpy(fresh->alignments, alignments, sizeof alignments);
    fresh->bias = bias;
    fresh->scales = scales;
    fresh->chain = chain;
    fresh->tf32 = device.options.tf32 && g.a_type == MPT_FLOAT32;
    // Forward GEMMs alone: gradients are E5M2, and keep FP32 sums.
    fresh->fastSums = device.options.fastSums && g.a_type == MPT_FLOAT8E4M3FN && g.b_type == MPT_FLOAT8E4M3FN;
    if (g.flags & chainedFlags) {
      // Nothing of it is bound to addresses, and it cannot be made while a graph is recorded.
      if (site && memcmp(&site->desc, &g, sizeof g) == 0)
        fresh->apart = std::move(site->apart);
      else if (mpt_status status = device.capturing ? MPT_OK : ApartGemm::make(device, g, fresh->apart))
        return status;
    }
    if (mpt_status status = build(*fresh))
      return status;
    if (mpt_status status = choose(exec, *blas, *fresh, a, b, d))
      return status;
    site = fresh.get();
    slot = std::move(fresh);
  }
  if (site->isApart)
    return site->apart->run(exec, a, b, bias, d, scales, chain);
  if (site->remembered && !device.capturing) { // a file can be wrong
    lt::Status refused = lt::Success;
    mpt_status status = multiply(device, *blas, *site, site->chosen, a, b, d, &refused);
    if (status || !refused) {
      site->remembered = status;
      return status;
    }
    if (mpt_status again = choose(exec, *blas, *site, a, b, d))
      return again;
    if (site->isApart)
      return site->apart->run(exec, a, b, bias, d, scales, chain);
  }
  return multiply(device, *blas, *site, site->chosen, a, b, d);
}

static int32_t gemmAt(mpt_exec *exec, int64_t site, const mpt_gemm_desc &desc, const void *a, const void *b,
                      const void *bias, void *d, const OperandScales &scales = {}, const Chain &chain = {}) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  return call.run([&] { return gemm(exec, slot ? *slot : none, desc, a, b, bias, d, scales, chain); });
}

extern "C" int32_t mpt_cuda_gemm(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                                 const void *bias, void *d) {
  return gemmAt(exec, site, *desc, a, b, bias, d);
}

extern "C" int32_t mpt_cuda_gemm_scaled(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a,
                                        const void *b, const void *bias, void *d, const void *scale_a,
                                        const void *scale_b) {
  return gemmAt(exec, site, *desc, a, b, bias, d, {scale_a, scale_b});
}

extern "C" int32_t mpt_cuda_gemm_chained(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a,
                                         const void *b, const void *bias, void *d, const void *scale_a,
                                         const void *scale_b, void *aux, void *sums) {
  return gemmAt(exec, site, *desc, a, b, bias, d, {scale_a, scale_b}, {aux, sums});
}
