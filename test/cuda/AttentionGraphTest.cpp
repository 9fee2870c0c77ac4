// SPDX-License-Identifier: Apache-2.0
// Attention and its gradients through cuDNN's graphs, in the fake cuDNN, against loops in double.
#include "Support.h"

#include "core/Float.h"
#include "cuda/AttentionGraph.h"
#include "cuda/PlanCache.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace mpt::rt;
using namespace mpt::test;

namespace {

const StandInLibrary &standIn() {
  static const StandInLibrary library;
  return library;
}

enum class BiasKind { None, Full, ByKey, Square };

struct Case {
  const char *name;
  int64_t type, batch, heads, kvHeads, queries, keys, depth, valueDepth;
  BiasKind bias;
  bool biasInSingle, causal;
  int64_t most; // bytes of scratch
};

constexpr int64_t plenty = ConvLibrary::workspaceBytes;
constexpr Case cases[] = {
    {"plain", MPT_FLOAT16, 2, 2, 2, 8, 16, 16, 16, BiasKind::None, false, false, plenty},
    {"causal", MPT_BFLOAT16, 2, 2, 2, 16, 16, 8, 8, BiasKind::None, false, true, plenty},
    {"mask by key", MPT_FLOAT16, 2, 3, 3, 8, 24, 16, 8, BiasKind::ByKey, true, false, plenty},
    {"bias, causal, uneven", MPT_BFLOAT16, 2, 2, 2, 13, 21, 8, 16, BiasKind::Full, false, true, plenty},
    {"square bias", MPT_FLOAT16, 3, 2, 2, 9, 9, 8, 8, BiasKind::Square, false, false, plenty},
    {"shared heads, causal", MPT_FLOAT16, 2, 6, 2, 12, 12, 16, 16, BiasKind::None, false, true, plenty},
    {"by batch", MPT_FLOAT16, 4, 4, 2, 8, 16, 16, 8, BiasKind::Full, true, false, 150000 * 2},
    {"by batch and head", MPT_BFLOAT16, 2, 6, 3, 8, 16, 8, 8, BiasKind::Square, false, true, 71000},
};

/// The device's memory of one operand, and its elements in host memory in the order of [batch, head, row, column].
class Operand {
public:
  Operand(CudaDevice &device, int64_t type, std::vector<int64_t> shape, std::vector<int64_t> strides)
      : device(device), type(type), shape(std::move(shape)), strides(std::move(strides)) {
    int64_t last = 0;
    for (size_t i = 0; i < 4; ++i)
      last += (this->shape[i] - 1) * this->strides[i];
    bytes.resize(static_cast<size_t>((last + 1) * (type == MPT_FLOAT32 ? 4 : 2)));
    memory = device.allocate(static_cast<int64_t>(bytes.size()));
  }
  template <typename F> void each(F fn) const {
    for (int64_t a = 0; a < shape[0]; ++a)
      for (int64_t b = 0; b < shape[1]; ++b)
        for (int64_t c = 0; c < shape[2]; ++c)
          for (int64_t d = 0; d < shape[3]; ++d)
            fn(at(a, b, c, d));
  }
  int64_t at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  double get(int64_t i) const {
    if (type == MPT_FLOAT32)
      return static_cast<double>(reinterpret_cast<const float *>(bytes.data())[i]);
    uint16_t bits = reinterpret_cast<const uint16_t *>(bytes.data())[i];
    return static_cast<double>(type == MPT_FLOAT16 ? fromF16(bits) : fromBF16(bits));
  }
  void put(int64_t i, float value) {
    if (type == MPT_FLOAT32)
      reinterpret_cast<float *>(bytes.data())[i] = value;
    else
      reinterpret_cast<uint16_t *>(bytes.data())[i] = type == MPT_FLOAT16 ? toF16(value) : toBF16(value);
  }
  void fill(std::mt19937 &random, float spread) {
    std::uniform_real_distribution<float> value(-spread, spread);
    each([&](int64_t i) { put(i, value(random)); });
    Transfer transfer{memory->start, bytes.data(), static_cast<int64_t>(bytes.size())};
    EXPECT(device.upload(&transfer, 1) == MPT_OK);
  }
  void fetch() {
    Transfer transfer{bytes.data(), memory->start, static_cast<int64_t>(bytes.size())};
    EXPECT(device.download(&transfer, 1) == MPT_OK);
  }
  void *pointer() const { return memory->start; }

  CudaDevice &device;
  const int64_t type;
  const std::vector<int64_t> shape, strides;
  std::vector<uint8_t> bytes;
  std::unique_ptr<Memory> memory;
};

using Matrix = std::vector<double>;

/// One attention: operands side by side in rows of all heads, as a projection leaves q, k and v.
struct Problem {
  Problem(CudaDevice &device, const Case &c)
      : c(c), q(rows(device, c.heads, c.queries, c.depth, 8)), k(rows(device, c.kvHeads, c.keys, c.depth, 16)),
        v(rows(device, c.kvHeads, c.keys, c.valueDepth, 0)), o(rows(device, c.heads, c.queries, c.valueDepth, 0)),
        dO(rows(device, c.heads, c.queries, c.valueDepth, 8)), dq(rows(device, c.heads, c.queries, c.depth, 0)),
        dk(rows(device, c.kvHeads, c.keys, c.depth, 24)), dv(rows(device, c.kvHeads, c.keys, c.valueDepth, 0)),
        stats(device, MPT_FLOAT32, {c.batch, c.heads, c.queries, 1}, {c.heads * c.queries, c.queries, 1, 1}),
        bias(device, c.biasInSingle ? MPT_FLOAT32 : c.type, {c.batch, c.heads, c.queries, c.keys}, biasStrides()) {
    std::mt19937 random(7);
    for (Operand *operand : {&q, &k, &v, &dO})
      operand->fill(random, 1.5f);
    bias.fill(random, 2);
    d = {};
    d.batch = c.batch, d.heads = c.heads, d.kv_heads = c.kvHeads, d.queries = c.queries, d.keys = c.keys;
    d.depth = c.depth, d.value_depth = c.valueDepth, d.type = c.type, d.causal = c.causal, d.scale = 0.375;
    d.bias_type = c.bias == BiasKind::None ? 0 : bias.type;
    std::copy(bias.strides.begin(), bias.strides.end(), d.bias_strides);
    auto strides = [](int64_t (&to)[3], const Operand &from) {
      std::copy(from.strides.begin(), from.strides.begin() + 3, to);
    };
    strides(d.q_strides, q), strides(d.k_strides, k), strides(d.v_strides, v), strides(d.o_strides, o);
    strides(d.do_strides, dO), strides(d.dq_strides, dq), strides(d.dk_strides, dk), strides(d.dv_strides, dv);
  }
  Operand rows(CudaDevice &device, int64_t heads, int64_t length, int64_t depth, int64_t more) const {
    int64_t row = heads * depth + more;
    return Operand(device, c.type, {c.batch, heads, length, depth}, {length * row, depth, row, 1});
  }
  std::vector<int64_t> biasStrides() const {
    int64_t square = (c.queries * c.keys + 7) / 8 * 8;
    return c.bias == BiasKind::ByKey    ? std::vector<int64_t>{c.keys, 0, 0, 1}
           : c.bias == BiasKind::Square ? std::vector<int64_t>{0, 0, c.keys, 1}
                                        : std::vector<int64_t>{c.heads * square, square, c.keys, 1};
  }
  std::vector<void *> pointers(bool gradient) const {
    std::vector<void *> all{q.pointer(), k.pointer(),    v.pointer(), d.bias_type ? bias.pointer() : nullptr,
                            o.pointer(), stats.pointer()};
    if (gradient)
      all.insert(all.end(), {dO.pointer(), dq.pointer(), dk.pointer(), dv.pointer()});
    return all;
  }
  /// The largest difference, in parts of the largest element.
  template <typename F> double errorOf(Operand &result, F wanted) {
    result.fetch();
    double error = 0, largest = 0;
    for (int64_t n = 0; n < result.shape[0]; ++n)
      for (int64_t h = 0; h < result.shape[1]; ++h) {
        Matrix values = wanted(n, h);
        for (int64_t i = 0; i < result.shape[2]; ++i)
          for (int64_t j = 0; j < result.shape[3]; ++j) {
            double value = values[static_cast<size_t>(i * result.shape[3] + j)];
            error = std::max(error, std::fabs(value - result.get(result.at(n, h, i, j))));
            largest = std::max(largest, std::fabs(value));
          }
      }
    return error / largest;
  }

  /// Probabilities of one head, and the logarithm of each row's sum.
  Matrix probabilities(int64_t n, int64_t h, Matrix *logarithms = nullptr) const {
    const int64_t shared = h / (c.heads / c.kvHeads);
    Matrix p(static_cast<size_t>(c.queries * c.keys));
    for (int64_t i = 0; i < c.queries; ++i) {
      double *row = p.data() + i * c.keys, sum = 0;
      for (int64_t j = 0; j < c.keys; ++j) {
        double score = 0;
        for (int64_t x = 0; x < c.depth; ++x)
          score += q.get(q.at(n, h, i, x)) * k.get(k.at(n, shared, j, x));
        score = score * d.scale + (d.bias_type ? bias.get(bias.at(n, h, i, j)) : 0);
        sum += row[j] = c.causal && j > i ? 0 : std::exp(score);
      }
      for (int64_t j = 0; j < c.keys; ++j)
        row[j] /= sum;
      if (logarithms)
        logarithms->push_back(std::log(sum));
    }
    return p;
  }
  /// The gradient of scores before they are scaled.
  Matrix scoreGradient(int64_t n, int64_t h, const Matrix &p) const {
    const int64_t shared = h / (c.heads / c.kvHeads);
    Matrix ds(p.size());
    for (int64_t i = 0; i < c.queries; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < c.keys; ++j) {
        auto at = static_cast<size_t>(i * c.keys + j);
        for (int64_t x = 0; x < c.valueDepth; ++x)
          ds[at] += dO.get(dO.at(n, h, i, x)) * v.get(v.at(n, shared, j, x));
        sum += ds[at] * p[at];
      }
      for (int64_t j = 0; j < c.keys; ++j) {
        auto at = static_cast<size_t>(i * c.keys + j);
        ds[at] = (ds[at] - sum) * p[at] * d.scale;
      }
    }
    return ds;
  }

  const Case &c;
  Operand q, k, v, o, dO, dq, dk, dv, stats, bias;
  mpt_attention_desc d;
};

void testForward(CudaDevice &device, ConvLibrary &library, Problem &p, double tolerance) {
  const Case &c = p.c;
  auto plan = planAttention(device, library, p.d, p.pointers(false));
  if (!EXPECT(plan != nullptr))
    return;
  EXPECT(plan->run(device, p.pointers(false)) == MPT_OK);
  EXPECT(plan == planAttention(device, library, p.d, p.pointers(false)));
  EXPECT(p.errorOf(p.stats, [&](int64_t n, int64_t h) {
    Matrix logarithms;
    p.probabilities(n, h, &logarithms);
    return logarithms;
  }) < 1e-5);
  EXPECT(p.errorOf(p.o, [&](int64_t n, int64_t h) {
    Matrix weights = p.probabilities(n, h), o(static_cast<size_t>(c.queries * c.valueDepth));
    for (int64_t i = 0; i < c.queries; ++i)
      for (int64_t j = 0; j < c.keys; ++j)
        for (int64_t x = 0; x < c.valueDepth; ++x)
          o[static_cast<size_t>(i * c.valueDepth + x)] +=
              weights[static_cast<size_t>(i * c.keys + j)] * p.v.get(p.v.at(n, h / (c.heads / c.kvHeads), j, x));
    return o;
  }) < tolerance);
}

void testGradient(CudaDevice &device, ConvLibrary &library, Problem &p, double tolerance) {
  const Case &c = p.c;
  const int64_t share = c.heads / c.kvHeads;
  auto plan = planAttentionGradient(device, library, p.d, p.pointers(true), c.most);
  if (!EXPECT(plan != nullptr))
    return;
  int64_t before = standIn().now().convolutions;
  EXPECT(plan->run(device, p.pointers(true)) == MPT_OK);
  EXPECT(device.synchronize() == MPT_OK);
  EXPECT(standIn().now().convolutions - before == (c.most == plenty ? 1 : c.batch > 2 ? 2 : 6));
  EXPECT(p.errorOf(p.dq, [&](int64_t n, int64_t h) {
    Matrix ds = p.scoreGradient(n, h, p.probabilities(n, h)), dq(static_cast<size_t>(c.queries * c.depth));
    for (int64_t i = 0; i < c.queries; ++i)
      for (int64_t j = 0; j < c.keys; ++j)
        for (int64_t x = 0; x < c.depth; ++x)
          dq[static_cast<size_t>(i * c.depth + x)] +=
              ds[static_cast<size_t>(i * c.keys + j)] * p.k.get(p.k.at(n, h / share, j, x));
    return dq;
  }) < tolerance);
  auto byKeys = [&](const Operand &other, int64_t depth, bool ofScores) {
    return [&c, &p, &other, depth, ofScores, share](int64_t n, int64_t shared) {
      Matrix sums(static_cast<size_t>(c.keys * depth));
      for (int64_t h = shared * share; h < (shared + 1) * share; ++h) {
        Matrix weights = p.probabilities(n, h);
        if (ofScores)
          weights = p.scoreGradient(n, h, weights);
        for (int64_t i = 0; i < c.queries; ++i)
          for (int64_t j = 0; j < c.keys; ++j)
            for (int64_t x = 0; x < depth; ++x)
              sums[static_cast<size_t>(j * depth + x)] +=
                  weights[static_cast<size_t>(i * c.keys + j)] * other.get(other.at(n, h, i, x));
      }
      return sums;
    };
  };
  EXPECT(p.errorOf(p.dk, byKeys(p.q, c.depth, true)) < tolerance);
  EXPECT(p.errorOf(p.dv, byKeys(p.dO, c.valueDepth, false)) < tolerance);
}

void testDeclined(CudaDevice &device, ConvLibrary &library) {
  Problem p(device, cases[0]);
  auto declined = [&](mpt_attention_desc d, std::vector<void *> pointers) {
    return !planAttention(device, library, d, pointers);
  };
  mpt_attention_desc d = p.d;
  std::vector<void *> pointers = p.pointers(false);
  pointers[0] = static_cast<uint8_t *>(pointers[0]) + 2;
  EXPECT(declined(d, pointers));
  d.depth = 12;
  EXPECT(declined(d, p.pointers(false)));
  d = p.d;
  d.type = MPT_FLOAT32;
  EXPECT(declined(d, p.pointers(false)));
  d = p.d;
  d.k_strides[2] += 1;
  EXPECT(declined(d, p.pointers(false)));
  d = p.d;
  d.depth = d.value_depth = 136; // more than an engine of the fake cuDNN takes
  EXPECT(declined(d, p.pointers(false)));
  d = p.d;
  d.queries = d.keys = 1;
  EXPECT(!planAttentionGradient(device, library, d, p.pointers(true)));
  library.plans->clear();
  setenv("MPT_STANDIN_NO_ATTENTION", "1", 1);
  EXPECT(declined(p.d, p.pointers(false)) && !planAttentionGradient(device, library, p.d, p.pointers(true)));
  unsetenv("MPT_STANDIN_NO_ATTENTION");
  EXPECT(declined(p.d, p.pointers(false))); // once declined, the same description is not looked at again
}

} // namespace

int main() {
  standIn().reset();
  const cu::Driver *api = nullptr;
  if (!EXPECT(openDriver(STANDIN, api) == MPT_OK))
    return finish("attention graphs");
  mpt_module_desc module{};
  module.name = "none";
  CudaOptions options;
  options.cudnn = options.cublaslt = STANDIN;
  options.cache = "";
  CudaDevice device(*api, module, options);
  if (!EXPECT(device.open(0) == MPT_OK))
    return finish("attention graphs");
  ContextScope scope(device);
  ConvLibrary *library = device.convolutions();
  if (!EXPECT(library && library->graphs != nullptr))
    return finish("attention graphs");
  for (const Case &c : cases) {
    int before = failures;
    // Probabilities of 16 bits, and results rounded again; gradients go through o and heads' sums too.
    double tolerance = c.type == MPT_FLOAT16 ? 1.0 / (1 << 10) : 1.0 / (1 << 7);
    Problem problem(device, c);
    testForward(device, *library, problem, tolerance);
    testGradient(device, *library, problem, 2 * tolerance);
    if (failures > before)
      fprintf(stderr, "in case '%s'\n", c.name);
  }
  testDeclined(device, *library);
  EXPECT(std::string(standIn().violations()).empty());
  fprintf(stderr, "%s", standIn().violations());
  return finish("attention graphs");
}
