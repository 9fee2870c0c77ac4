// SPDX-License-Identifier: Apache-2.0
// GEMMs as cuBLASLt describes them.
#include "cuda/GemmSite.h"

#include "core/Types.h"

#include <algorithm>

using namespace mpt::rt;

namespace {

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

} // namespace

int mpt::rt::blasType(int64_t dtype) {
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

mpt_status mpt::rt::ltCheck(lt::Status status, const char *what) {
  return status == lt::Success ? MPT_OK : fail(MPT_INTERNAL, "%s: cuBLASLt status %d", what, status);
}

void mpt::rt::alignmentsOf(const mpt_gemm_desc &g, const void *a, const void *b, const void *d, uint32_t (&out)[3]) {
  Operand operands[3];
  operandsOf(g, operands[0], operands[1], operands[2]);
  const void *pointers[] = {b, a, d};
  for (int i = 0; i < 3; ++i)
    out[i] = alignmentOf(pointers[i], operands[i]);
}

mpt_status mpt::rt::describeGemm(GemmSite &site) {
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
    int type = blasType(g.bias_type);
    set(lt::BiasDataType, type);
  }
  if (site.chain.sums) {
    set(lt::BiasPointer, site.chain.sums);
    int type = blasType(g.bias_type);
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
      status = api.MatrixLayoutCreate(layouts[i], blasType(m.type), static_cast<uint64_t>(m.rows),
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
