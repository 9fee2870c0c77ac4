// SPDX-License-Identifier: Apache-2.0
// mpt_cuda_gemm: GEMMs through cuBLASLt, with the algorithm that measured fastest.
#include "cuda/GemmSite.h"

#include "core/Types.h"

#include <cstring>
#include <sstream>
#include <vector>

using namespace mpt::rt;

namespace {

constexpr int searchRounds = 3;
constexpr size_t quickAlgorithms = 8, allAlgorithms = 24; // that cuBLASLt is asked for

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
    if (blasType(type) < 0)
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
  uint32_t alignments[3];
  alignmentsOf(g, a, b, d, alignments);
  auto *site = static_cast<GemmSite *>(slot.get());
  if (!site || !hasSameBits(site->desc, g) || memcmp(site->alignments, alignments, sizeof alignments) != 0 ||
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
      if (site && hasSameBits(site->desc, g))
        fresh->apart = std::move(site->apart);
      else if (mpt_status status = device.capturing ? MPT_OK : ApartGemm::make(device, g, fresh->apart))
        return status;
    }
    if (mpt_status status = describeGemm(*fresh))
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
