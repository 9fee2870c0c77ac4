// SPDX-License-Identifier: Apache-2.0
// The fake cuBLASLt: checks descriptions as the real one documents them, multiplies in plain loops.
#include "Order.h"
#include "StandIn.h"
#include "Values.h"

#include "cuda/Blas.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace mpt::rt;
using namespace standin;

namespace {

struct Desc {
  int compute, scale;
  int transposed[2] = {lt::N, lt::N};
  int epilogue = lt::Default, biasType = -1;
  uint64_t bias = 0, aux = 0, scales[2] = {0, 0};
  int64_t auxLead = 0;
  int8_t fast = 0; // sums of 8-bit operands
  bool has(int bits) const { return (epilogue & bits) == bits; }
  bool sums() const { return (epilogue & (lt::SumA | lt::SumB)) != 0 || has(lt::Aux | lt::SumD); }
  bool takesVector() const { return has(lt::Bias) || sums(); }
  bool masks() const { return has(lt::Relu | lt::Aux) || has(lt::ReluGradient); }
  bool isGradient() const { return has(lt::ReluGradient) || has(lt::GeluGradient); }
};
struct Matrix {
  int type;
  int64_t rows, cols, lead, batch = 1, stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
  uint32_t schemes = lt::SumsInPlace | lt::SumsInComputeType | lt::SumsInOutputType;
};

uint64_t digest(const Desc &desc, const Matrix &a, const Matrix &b, const Matrix &d) {
  std::string text;
  for (const Matrix *m : {&a, &b, &d})
    for (int64_t word : {int64_t(m->type), m->rows, m->cols, m->lead, m->batch, m->stride})
      text += std::to_string(word) + " ";
  for (int word : {desc.compute, desc.scale, desc.transposed[0], desc.transposed[1], desc.epilogue, desc.biasType,
                   int(desc.scales[0] != 0), int(desc.scales[1] != 0), int(desc.fast)})
    text += std::to_string(word) + " ";
  text += std::to_string(desc.auxLead);
  return std::hash<std::string>()(text);
}

/// An algorithm's words: its request as a digest, the request's workspace and alignments, its number. They mean
/// the same in every process, as the library's words do.
enum Word { Magic, Digest, Workspace, Alignments, Variant, Schemes };
constexpr uint64_t magic = 0x5eed5eed;
int handles = 0;

Desc &of(lt::MatmulDesc desc) { return *reinterpret_cast<Desc *>(desc); }
Matrix &of(lt::Layout layout) { return *reinterpret_cast<Matrix *>(layout); }
Preference &of(lt::Preference preference) { return *reinterpret_cast<Preference *>(preference); }

bool typeOf(int type, Type &out) {
  const std::map<int, Type> types{{lt::R32F, Type::F32},   {lt::R64F, Type::F64},     {lt::R16F, Type::F16},
                                  {lt::R16BF, Type::BF16}, {lt::R8FE4M3, Type::E4M3}, {lt::R8FE5M2, Type::E5M2}};
  auto it = types.find(type);
  if (it == types.end())
    return false;
  out = it->second;
  return true;
}

bool isFloat8(int type) { return type == lt::R8FE4M3 || type == lt::R8FE5M2; }

/// A rule of the reference that a description with an epilogue breaks; empty where it breaks none.
std::string faultOf(const Desc &desc, const Matrix &d) {
  constexpr int known[] = {lt::Default,        lt::Relu,
                           lt::Bias,           lt::Relu | lt::Bias,
                           lt::Gelu,           lt::Gelu | lt::Bias,
                           lt::Relu | lt::Aux, lt::Relu | lt::Aux | lt::Bias,
                           lt::Gelu | lt::Aux, lt::Gelu | lt::Aux | lt::Bias,
                           lt::ReluGradient,   lt::ReluGradient | lt::SumD,
                           lt::GeluGradient,   lt::GeluGradient | lt::SumD,
                           lt::SumA,           lt::SumB};
  if (std::find(std::begin(known), std::end(known), desc.epilogue) == std::end(known))
    return "an epilogue that there is none of: " + std::to_string(desc.epilogue);
  if (desc.takesVector() && !desc.bias)
    return "an epilogue without its vector";
  if (!desc.has(lt::Aux))
    return "";
  if (!desc.aux || desc.aux % 16)
    return "an epilogue without what it exchanges, or not in sixteens of bytes";
  if (desc.auxLead < d.rows || desc.auxLead % (desc.masks() ? 128 : 8))
    return "a leading dimension of " + std::to_string(desc.auxLead) + " for what an epilogue exchanges";
  return d.batch > 1 ? "a batch with an epilogue's matrix, but no stride of it" : "";
}

/// Whether an epilogue exchanges something, or may be wanted in another way.
bool isChained(const Desc &desc) { return desc.has(lt::Aux) || desc.has(lt::Gelu) || desc.sums(); }

/// Which epilogues there are for types and operations. Of gradients, sums of operands and depths of 1 the reference
/// says less than nvmath-python's checks do: A has to be as it is stored, B transposed, and the depth more than 1.
bool hasEpilogue(const Desc &desc, const Matrix &a) {
  if (isChained(desc) && getenv("MPT_STANDIN_NO_EPILOGUES"))
    return false;
  if ((desc.has(lt::Aux) || desc.sums()) && (a.type == lt::R64F || isFloat8(a.type)))
    return false;
  int64_t depth = desc.transposed[0] == lt::T ? a.rows : a.cols;
  return !(depth == 1 && (desc.isGradient() || desc.sums())) && !(desc.has(lt::SumA) && desc.transposed[0] != lt::N) &&
         !(desc.has(lt::SumB) && desc.transposed[1] != lt::T);
}

/// Whether cublasLtMatmul's table of supported types admits this product, of the ones that the runtime may ask for.
bool supported(const Desc &desc, const Matrix &a, const Matrix &b, const Matrix &d) {
  if (!hasEpilogue(desc, a))
    return false;
  if (a.type == lt::R64F)
    return b.type == lt::R64F && d.type == lt::R64F && desc.compute == lt::Compute64F && desc.scale == lt::R64F;
  if (desc.fast && (a.type != lt::R8FE4M3 || b.type != lt::R8FE4M3))
    return false;
  const bool rounds = getenv("MPT_STANDIN_TF32") && a.type == lt::R32F;
  if (desc.compute != (rounds ? lt::Compute32FFromTF32 : lt::Compute32F) || desc.scale != lt::R32F)
    return false;
  // Numbers that scale operands are for 8 bits.
  if ((desc.scales[0] && !isFloat8(a.type)) || (desc.scales[1] && !isFloat8(b.type)))
    return false;
  // A bias and its gradient are of the result's type; GEMMs of 8 bits into FP32 take one of BF16.
  if (desc.takesVector() && desc.biasType >= 0 &&
      desc.biasType != (isFloat8(a.type) && d.type == lt::R32F ? int(lt::R16BF) : d.type))
    return false;
  if (isFloat8(a.type) || isFloat8(b.type))
    return isFloat8(a.type) && isFloat8(b.type) && !(a.type == lt::R8FE5M2 && b.type == lt::R8FE5M2) &&
           desc.transposed[0] == lt::T && desc.transposed[1] == lt::N && a.rows % 16 == 0 && a.cols % 16 == 0 &&
           b.cols % 16 == 0 && (d.type == lt::R32F || d.type == lt::R16F || d.type == lt::R16BF);
  return a.type == b.type && (d.type == a.type || (d.type == lt::R32F && a.type != lt::R32F));
}

bool shapesFit(const Desc &desc, const Matrix &a, const Matrix &b, const Matrix &d) {
  bool ta = desc.transposed[0] == lt::T, tb = desc.transposed[1] == lt::T;
  int64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols, k2 = tb ? b.cols : b.rows, n = tb ? b.rows : b.cols;
  return m == d.rows && n == d.cols && k == k2 && a.batch == d.batch && b.batch == d.batch;
}

int64_t spanOf(const Matrix &m) { return (m.batch - 1) * m.stride + (m.cols - 1) * m.lead + m.rows; }

constexpr double kSlope = 0.7978845608028654, kCube = 0.044715;

double geluOf(double x) { return 0.5 * x * (1 + std::tanh(kSlope * (x + kCube * x * x * x))); }

double slopeOf(double x) {
  double t = std::tanh(kSlope * (x + kCube * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSlope * (1 + 3 * kCube * x * x);
}

/// The previous value to be kept at `aux`, at first zero.
double lastKept(const void *aux, int64_t at, double value) {
  static std::map<std::pair<const void *, int64_t>, double> kept;
  return std::exchange(kept[{aux, at}], value);
}

/// An element of the result after its epilogue; `at` is its place in the matrix that epilogues exchange.
double finish(const Desc &desc, double value, Type type, void *aux, int64_t at) {
  auto *bits = static_cast<uint8_t *>(aux) + at / 8;
  const auto bit = static_cast<uint8_t>(1u << (at % 8));
  if (desc.has(lt::ReluGradient))
    return *bits & bit ? value : 0;
  if (desc.has(lt::GeluGradient))
    return value * slopeOf(isWrong("gelu-slope") ? value : load(type, aux, at));
  if (desc.has(lt::Aux | lt::Relu))
    *bits = static_cast<uint8_t>(value > 0 ? *bits | bit : *bits & ~bit);
  else if (desc.has(lt::Aux))
    store(type, aux, at, isWrong("stale-kept") ? lastKept(aux, at, value) : value);
  if (desc.has(lt::Relu))
    return value > 0 ? value : 0;
  return desc.has(lt::Gelu) ? geluOf(value) : value;
}

/// Sums of an operand over the depth.
void sumOperand(const Desc &desc, const void *a, const Matrix &la, const void *b, const Matrix &lb, Type type,
                void *sums) {
  bool first = desc.has(lt::SumA);
  const Matrix &m = first ? la : lb;
  Type element{};
  typeOf(m.type, element);
  for (int64_t i = 0; i < m.rows; ++i) { // A as it is stored, B transposed
    float sum = 0;
    for (int64_t p = 0; p < m.cols; ++p)
      sum += static_cast<float>(load(element, first ? a : b, p * m.lead + i));
    if (isWrong("bias-sums-axis"))
      for (int64_t p = sum = 0; i < m.cols && p < m.rows; ++p)
        sum += static_cast<float>(load(element, first ? a : b, i * m.lead + p));
    store(type, sums, i, isWrong("bias-sums-zero") ? 0 : sum);
  }
}

void multiply(const Desc &desc, double alpha, const void *a, const Matrix &la, const void *b, const Matrix &lb,
              double beta, void *d, const Matrix &ld, void *bias, void *aux, bool backwards) {
  Type typeA{}, typeB{}, typeD{}, typeBias{};
  typeOf(la.type, typeA);
  typeOf(lb.type, typeB);
  typeOf(ld.type, typeD);
  if (bias)
    typeOf(desc.biasType < 0 ? ld.type : desc.biasType, typeBias);
  bool ta = desc.transposed[0] == lt::T, tb = desc.transposed[1] == lt::T, wide = la.type == lt::R64F;
  int64_t k = ta ? la.rows : la.cols;
  std::vector<double> column(static_cast<size_t>(k));
  std::vector<float> sums(static_cast<size_t>(ld.rows));
  auto product = [&](int64_t batch, int64_t i) {
    double exact = 0;
    float sum = 0;
    for (int64_t n = 0; n < k; ++n) {
      const int64_t p = backwards ? k - 1 - n : n; // algorithms differ in their roundings
      double x = load(typeA, a, batch * la.stride + (ta ? i * la.lead + p : p * la.lead + i));
      double term = x * column[static_cast<size_t>(p)];
      exact += term;
      sum += static_cast<float>(term);
    }
    return wide ? exact : static_cast<double>(sum);
  };
  if (desc.epilogue & (lt::SumA | lt::SumB))
    sumOperand(desc, a, la, b, lb, typeBias, bias);
  auto leave = [&](int64_t i, int64_t j, int64_t at, double value) {
    if (beta != 0)
      value += beta * load(typeD, d, at);
    if (desc.has(lt::Bias))
      value += load(typeBias, bias, i);
    value = finish(desc, value, typeD, aux, j * desc.auxLead + i);
    sums[static_cast<size_t>(i)] += static_cast<float>(value);
    store(typeD, d, at, value);
  };
  for (int64_t batch = 0; batch < ld.batch; ++batch)
    for (int64_t j = 0; j < ld.cols; ++j) {
      for (int64_t p = 0; p < k; ++p)
        column[static_cast<size_t>(p)] = load(typeB, b, batch * lb.stride + (tb ? p * lb.lead + j : j * lb.lead + p));
      for (int64_t i = 0; i < ld.rows; ++i)
        leave(i, j, batch * ld.stride + j * ld.lead + i, alpha * product(batch, i));
    }
  if (desc.has(lt::Aux | lt::SumD))
    for (int64_t i = 0; i < ld.rows; ++i)
      store(typeBias, bias, i, isWrong("bias-sums-zero") ? 0 : sums[static_cast<size_t>(i)]);
}

/// A GEMM that is enqueued: what cublasLtMatmul was given.
struct Gemm {
  void run() const;
  bool takeFactor(double &factor) const;

  Desc desc;
  Matrix ma, mb, md;
  uint64_t a, b, d, workspace;
  size_t workspaceBytes;
  double scale, keep;
  bool backwards;
};

/// The scale with those of 8-bit operands.
bool Gemm::takeFactor(double &factor) const {
  factor = scale;
  if (isFloat8(ma.type) && isWrong("scale-of-8-bits"))
    factor *= 2;
  for (uint64_t number : desc.scales) {
    if (!number)
      continue;
    const void *value = translate(number, 4, "gemm, scale");
    if (!value)
      return false;
    factor *= load(Type::F32, value, 0);
  }
  return true;
}

void Gemm::run() const {
  Type ta{}, tb{}, td{}, tBias{};
  if (!typeOf(ma.type, ta) || !typeOf(mb.type, tb) || !typeOf(md.type, td))
    return violation("cuBLASLt: an unknown type");
  accesses(a, spanOf(ma) * sizeOf(ta), false, "gemm");
  accesses(b, spanOf(mb) * sizeOf(tb), false, "gemm");
  accesses(d, spanOf(md) * sizeOf(td), true, "gemm");
  const void *x = translate(a, spanOf(ma) * sizeOf(ta), "gemm, first operand");
  const void *y = translate(b, spanOf(mb) * sizeOf(tb), "gemm, second operand");
  void *z = translate(d, spanOf(md) * sizeOf(td), "gemm, result");
  void *bias = nullptr, *aux = nullptr;
  if (desc.takesVector()) {
    typeOf(desc.biasType < 0 ? md.type : desc.biasType, tBias);
    bias = translate(desc.bias, (desc.has(lt::SumB) ? md.cols : md.rows) * sizeOf(tBias), "gemm, bias");
    if (!bias)
      return;
  }
  if (desc.has(lt::Aux)) {
    int64_t span = (md.cols - 1) * desc.auxLead + (desc.masks() ? (md.rows + 127) / 128 * 128 : md.rows);
    aux = translate(desc.aux, desc.masks() ? span / 8 : span * sizeOf(td), "gemm, what epilogues exchange");
    if (!aux)
      return;
  }
  if (workspaceBytes) { // its contents are anybody's
    void *scratch = translate(workspace, static_cast<int64_t>(workspaceBytes), "gemm, workspace");
    if (!scratch)
      return;
    memset(scratch, 0x5a, workspaceBytes);
  }
  double factor = 0;
  if (takeFactor(factor) && x && y && z)
    multiply(desc, factor, x, ma, y, mb, keep, z, md, bias, aux, backwards);
}

std::string describe(const Desc &desc, const Matrix &a, const Matrix &b, const Matrix &d) {
  bool ta = desc.transposed[0] == lt::T;
  std::string text;
  for (int64_t n : {d.rows, d.cols, ta ? a.rows : a.cols, d.batch})
    text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text + " types " + std::to_string(a.type) + " " + std::to_string(b.type) + " " + std::to_string(d.type) +
         (ta ? " T" : " N") + (desc.transposed[1] == lt::T ? "T" : "N") + " epilogue " + std::to_string(desc.epilogue) +
         (desc.scales[0] || desc.scales[1] ? " scaled" : "") + (desc.fast ? " fast" : "");
}

lt::Status bad(const std::string &text) {
  violation("cuBLASLt: " + text);
  return 7;
}

std::atomic<bool> wasOpened = false;

} // namespace

bool standin::blasWasOpened() { return wasOpened; }

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT lt::Status cublasLtCreate(lt::Handle *handle) {
  ++handles;
  wasOpened = true;
  *handle = reinterpret_cast<lt::Handle>(&handles);
  return lt::Success;
}
EXPORT lt::Status cublasLtDestroy(lt::Handle) {
  return --handles < 0 ? bad("a handle is destroyed once too often") : lt::Success;
}
EXPORT size_t cublasLtGetVersion() { return 130100; }
EXPORT lt::Status cublasLtMatmulDescCreate(lt::MatmulDesc *desc, int compute, int scale) {
  *desc = reinterpret_cast<lt::MatmulDesc>(new Desc{compute, scale});
  return lt::Success;
}
EXPORT lt::Status cublasLtMatmulDescDestroy(lt::MatmulDesc desc) {
  delete &of(desc);
  return lt::Success;
}
EXPORT lt::Status cublasLtMatmulDescSetAttribute(lt::MatmulDesc desc, int attribute, const void *value, size_t bytes) {
  Desc &d = of(desc);
  auto read = [&](auto &field) {
    if (bytes != sizeof field)
      return bad("an attribute of " + std::to_string(bytes) + " bytes");
    memcpy(&field, value, bytes);
    return int(lt::Success);
  };
  switch (attribute) {
  case lt::TransA:
    return read(d.transposed[0]);
  case lt::TransB:
    return read(d.transposed[1]);
  case lt::EpilogueAttribute:
    return read(d.epilogue);
  case lt::BiasPointer:
    return read(d.bias);
  case lt::AuxPointer:
    return read(d.aux);
  case lt::AuxLead:
    return read(d.auxLead);
  case lt::ScaleA:
  case lt::ScaleB: {
    uint64_t &scale = d.scales[attribute - lt::ScaleA];
    if (lt::Status status = read(scale))
      return status;
    return scale && onDevice(scale) && scale % 4 == 0 ? int(lt::Success)
                                                      : bad("a scale that is no number on the device");
  }
  case lt::BiasDataType:
    return read(d.biasType);
  case lt::FastSums:
    return read(d.fast);
  default:
    return bad("an unknown attribute of a GEMM");
  }
}
EXPORT lt::Status cublasLtMatrixLayoutCreate(lt::Layout *layout, int type, uint64_t rows, uint64_t cols, int64_t lead) {
  if (lead < static_cast<int64_t>(rows))
    return bad("a leading dimension of " + std::to_string(lead) + " for " + std::to_string(rows) + " rows");
  *layout =
      reinterpret_cast<lt::Layout>(new Matrix{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), lead});
  return lt::Success;
}
EXPORT lt::Status cublasLtMatrixLayoutDestroy(lt::Layout layout) {
  delete &of(layout);
  return lt::Success;
}
EXPORT lt::Status cublasLtMatrixLayoutSetAttribute(lt::Layout layout, int attribute, const void *value, size_t bytes) {
  if (attribute == lt::BatchCount && bytes == 4) {
    of(layout).batch = *static_cast<const int32_t *>(value);
    return lt::Success;
  }
  if (attribute == lt::StridedBatchOffset && bytes == 8) {
    of(layout).stride = *static_cast<const int64_t *>(value);
    return lt::Success;
  }
  return bad("an unknown attribute of a layout");
}
EXPORT lt::Status cublasLtMatmulPreferenceCreate(lt::Preference *preference) {
  *preference = reinterpret_cast<lt::Preference>(new Preference);
  return lt::Success;
}
EXPORT lt::Status cublasLtMatmulPreferenceDestroy(lt::Preference preference) {
  delete &of(preference);
  return lt::Success;
}
EXPORT lt::Status cublasLtMatmulPreferenceSetAttribute(lt::Preference preference, int attribute, const void *value,
                                                       size_t bytes) {
  if (attribute == lt::MaxWorkspace && bytes == 8) {
    memcpy(&of(preference).workspace, value, bytes);
    return lt::Success;
  }
  if (attribute == lt::ReductionSchemes && bytes == 4) {
    memcpy(&of(preference).schemes, value, bytes);
    return lt::Success;
  }
  if (attribute >= lt::AlignmentA && attribute <= lt::AlignmentD && bytes == 4) {
    memcpy(&of(preference).alignments[attribute - lt::AlignmentA], value, bytes);
    return lt::Success;
  }
  return bad("an unknown preference");
}
EXPORT lt::Status cublasLtMatmulAlgoGetHeuristic(lt::Handle, lt::MatmulDesc desc, lt::Layout a, lt::Layout b,
                                                 lt::Layout c, lt::Layout d, lt::Preference preference, int wanted,
                                                 lt::Heuristic *results, int *found) {
  *found = 0;
  if (c != d || !shapesFit(of(desc), of(a), of(b), of(d)))
    return bad("matrices that do not fit together");
  if (std::string fault = faultOf(of(desc), of(d)); !fault.empty())
    return bad(fault);
  if (of(preference).schemes & ~static_cast<uint32_t>(lt::SumsInComputeType))
    return bad("a search that allows sums in the result's type");
  if (!supported(of(desc), of(a), of(b), of(d)))
    return lt::NotSupported;
  for (int i = 0; i < wanted && i < 2; ++i) {
    results[i] = {};
    uint64_t *words = results[i].algorithm.data;
    words[Magic] = magic;
    words[Digest] = digest(of(desc), of(a), of(b), of(d));
    words[Workspace] = of(preference).workspace;
    for (int k = 0; k < 4; ++k)
      words[Alignments] |= uint64_t(of(preference).alignments[k]) << (16 * k);
    words[Variant] = static_cast<uint64_t>(i);
    words[Schemes] = of(preference).schemes;
    results[i].workspace = i ? 1 << 20 : 0;
    ++*found;
  }
  return lt::Success;
}
EXPORT lt::Status cublasLtMatmul(lt::Handle, lt::MatmulDesc descHandle, const void *alpha, const void *a, lt::Layout la,
                                 const void *b, lt::Layout lb, const void *beta, const void *c, lt::Layout lc, void *d,
                                 lt::Layout ldHandle, const lt::Algorithm *algorithm, void *workspace,
                                 size_t workspaceBytes, cu::Stream stream) {
  const Desc desc = of(descHandle);
  const Matrix ma = of(la), mb = of(lb), md = of(ldHandle);
  const uint64_t *words = algorithm->data;
  if (words[Magic] != magic)
    return bad("an algorithm that was never proposed");
  if (getenv("MPT_STANDIN_REFUSE") && words[Variant] == strtoull(getenv("MPT_STANDIN_REFUSE"), nullptr, 10))
    return lt::NotSupported;
  if (words[Schemes] != lt::SumsInComputeType)
    return bad("an algorithm that may add up in the result's type");
  if (words[Digest] != digest(desc, ma, mb, md))
    return bad("an algorithm for another GEMM");
  if (c != d || lc != ldHandle || workspaceBytes > words[Workspace])
    return bad("another result or more workspace than was said");
  const void *pointers[] = {a, b, d, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<uint64_t>(pointers[i]) % (words[Alignments] >> (16 * i) & 0xffff))
      return bad("an operand that is less aligned than was said");
  bool wide = desc.scale == lt::R64F;
  double scale = wide ? *static_cast<const double *>(alpha) : static_cast<double>(*static_cast<const float *>(alpha));
  double keep = wide ? *static_cast<const double *>(beta) : static_cast<double>(*static_cast<const float *>(beta));
  auto at = [](const void *p) { return reinterpret_cast<uint64_t>(p); };
  if (refusesCapture("cublaslt"))
    return lt::NotSupported;
  const uint64_t variant = words[Variant];
  const char *fastest = getenv("MPT_STANDIN_FASTEST_ALGORITHM");
  double milliseconds = variant == (fastest ? strtoull(fastest, nullptr, 10) : 0) ? 2 : 2.25;
  if (isChained(desc) && getenv("MPT_STANDIN_SLOW_EPILOGUES"))
    milliseconds += 100;
  note("gemm " + describe(desc, ma, mb, md));
  const Gemm gemm{desc, ma, mb, md, at(a), at(b), at(d), at(workspace), workspaceBytes, scale, keep, variant % 2 != 0};
  enqueue(stream, Kind::Product, milliseconds, [gemm] { gemm.run(); });
  return lt::Success;
}
