// SPDX-License-Identifier: Apache-2.0
// Attention through cuDNN's fused engines, which know a graph by its operations, their order and their types: NVIDIA's
// documentation of scaled dot-product attention in cuDNN 9. GEMMs take k and v transposed where it says so;
// everything inside is FP32 but operands of GEMMs, which have q's type.
#include "cuda/AttentionGraph.h"
#include "cuda/PlanCache.h"

#include <algorithm>
#include <array>
#include <limits>

using namespace mpt::rt;

namespace {

enum : int64_t {
  Q = 1,
  K,
  V,
  Bias,
  O,
  Stats,
  GradientO,
  GradientQ,
  GradientK,
  GradientV,
  RowSums, // of o times its gradient
  Scale,
  Masked,
  One,
  Inside
};

using Shape = std::vector<int64_t>;

class AttentionMaker {
public:
  AttentionMaker(GraphMaker &b, const mpt_attention_desc &d) : b(b), d(d), type(dnnType(d.type)) {}

  dnn::Descriptor forward() {
    dnn::Descriptor q = operand(Q, d.heads, d.queries, d.depth, d.q_strides);
    dnn::Descriptor kT = transposed(K, d.kv_heads, d.keys, d.depth, d.k_strides);
    dnn::Descriptor v = operand(V, d.kv_heads, d.keys, d.value_depth, d.v_strides);
    dnn::Descriptor score = masked(scores(q, kT));
    dnn::Descriptor largest = inside(rows()), sum = inside(rows()), logarithm = inside(rows());
    operations.push_back(b.reduction(dnn::ReduceMaximum, score, largest));
    dnn::Descriptor lower = pointwise(dnn::Subtract, score, largest, inside(square()));
    dnn::Descriptor exponential = pointwise(dnn::Exponential, lower, nullptr, inside(square()));
    operations.push_back(b.reduction(dnn::ReduceAdd, exponential, sum));
    pointwise(dnn::Logarithm, sum, nullptr, logarithm);
    pointwise(dnn::Add, largest, logarithm, perRow(Stats));
    dnn::Descriptor p = pointwise(dnn::Divide, exponential, sum, inside(square(), type));
    operations.push_back(b.gemm(p, v, operand(O, d.heads, d.queries, d.value_depth, d.o_strides)));
    return b.graph(operations);
  }

  /// dq is written by the GEMM that makes it. Engines are faster for a graph whose GEMM leaves it in FP32, but
  /// their blocks then add to it in any order, and no note of theirs says so.
  dnn::Descriptor gradient() {
    dnn::Descriptor q = operand(Q, d.heads, d.queries, d.depth, d.q_strides);
    dnn::Descriptor kT = transposed(K, d.kv_heads, d.keys, d.depth, d.k_strides);
    dnn::Descriptor vT = transposed(V, d.kv_heads, d.keys, d.value_depth, d.v_strides);
    dnn::Descriptor o = operand(O, d.heads, d.queries, d.value_depth, d.o_strides);
    dnn::Descriptor dO = operand(GradientO, d.heads, d.queries, d.value_depth, d.do_strides);

    const Shape wide{d.batch, d.heads, d.queries, d.value_depth};
    dnn::Descriptor products = pointwise(dnn::Multiply, dO, o, inside(wide)), sums = inside(rows());
    operations.push_back(b.reduction(dnn::ReduceAdd, products, sums));
    dnn::Descriptor rowSums = pointwise(dnn::Multiply, sums, number(One), perRow(RowSums));

    dnn::Descriptor lower = pointwise(dnn::Subtract, scores(q, kT), perRow(Stats), inside(square()));
    dnn::Descriptor p = pointwise(dnn::Exponential, masked(lower), nullptr, inside(square()));
    byKeys(p, dO, d.value_depth, GradientV, d.dv_strides);

    dnn::Descriptor dP = inside(square());
    operations.push_back(b.gemm(dO, vT, dP));
    dnn::Descriptor centred = pointwise(dnn::Subtract, dP, rowSums, inside(square()));
    dnn::Descriptor dS = pointwise(dnn::Multiply, centred, p, inside(square()));
    dnn::Descriptor scaled = pointwise(dnn::Multiply, dS, scale, inside(square()));
    byKeys(scaled, q, d.depth, GradientK, d.dk_strides);

    dnn::Descriptor k = tensor(Inside + count++, d.kv_heads, d.keys, d.depth, d.k_strides, GraphMaker::Place::Inside);
    operations.push_back(b.reshape(kT, k));
    operations.push_back(b.gemm(scaled, k, operand(GradientQ, d.heads, d.queries, d.depth, d.dq_strides)));
    return b.graph(operations);
  }

private:
  Shape rows() const { return {d.batch, d.heads, d.queries, 1}; }
  Shape square() const { return {d.batch, d.heads, d.queries, d.keys}; }

  static Shape dense(const Shape &shape) {
    Shape strides(shape.size(), 1);
    for (size_t i = shape.size() - 1; i-- > 0;)
      strides[i] = strides[i + 1] * shape[i + 1];
    return strides;
  }
  dnn::Descriptor inside(const Shape &shape, int of = dnn::Float) {
    return b.tensor(Inside + count++, of, shape, dense(shape), GraphMaker::Place::Inside);
  }
  dnn::Descriptor number(int64_t id) {
    return b.tensor(id, dnn::Float, {1, 1, 1, 1}, {1, 1, 1, 1}, GraphMaker::Place::Number);
  }
  dnn::Descriptor perRow(int64_t id) { return b.tensor(id, dnn::Float, rows(), dense(rows())); }
  dnn::Descriptor tensor(int64_t id, int64_t heads, int64_t length, int64_t depth, const int64_t (&strides)[3],
                         GraphMaker::Place place = GraphMaker::Place::Memory) {
    return b.tensor(id, type, {d.batch, heads, length, depth}, {strides[0], strides[1], strides[2], 1}, place);
  }
  dnn::Descriptor operand(int64_t id, int64_t heads, int64_t length, int64_t depth, const int64_t (&strides)[3]) {
    return tensor(id, heads, length, depth, strides);
  }
  dnn::Descriptor transposed(int64_t id, int64_t heads, int64_t length, int64_t depth, const int64_t (&strides)[3]) {
    return b.tensor(id, type, {d.batch, heads, depth, length}, {strides[0], strides[1], 1, strides[2]});
  }
  dnn::Descriptor pointwise(dnn::PointwiseFunction function, dnn::Descriptor x, dnn::Descriptor other,
                            dnn::Descriptor y, dnn::Descriptor t = nullptr, int64_t axis = -1) {
    operations.push_back(b.pointwise(function, x, other, y, t, axis));
    return y;
  }

  /// scale q k^T + bias.
  dnn::Descriptor scores(dnn::Descriptor q, dnn::Descriptor kT) {
    dnn::Descriptor raw = inside(square());
    operations.push_back(b.gemm(q, kT, raw));
    scale = number(Scale);
    dnn::Descriptor score = pointwise(dnn::Multiply, raw, scale, inside(square()));
    if (!d.bias_type)
      return score;
    Shape shape = square(), strides(d.bias_strides, d.bias_strides + 4);
    for (size_t i = 0; i < 4; ++i)
      if (!strides[i])
        shape[i] = 1;
    for (size_t i = 4; i-- > 0;)
      if (!strides[i])
        strides[i] = i < 3 ? shape[i + 1] * strides[i + 1] : 1;
    return pointwise(dnn::Add, score, b.tensor(Bias, dnnType(d.bias_type), shape, strides), inside(square()));
  }
  /// Of rows and columns: the column no larger than the row, else `Masked`.
  dnn::Descriptor masked(dnn::Descriptor score) {
    if (!d.causal)
      return score;
    dnn::Descriptor row = pointwise(dnn::Index, score, nullptr, inside(square(), dnn::Integer), nullptr, 2);
    dnn::Descriptor column = pointwise(dnn::Index, score, nullptr, inside(square(), dnn::Integer), nullptr, 3);
    dnn::Descriptor seen = pointwise(dnn::GreaterOrEqual, row, column, inside(square(), dnn::Boolean));
    return pointwise(dnn::Select, score, number(Masked), inside(square()), seen);
  }
  /// target = x^T y; where heads share keys, the sum over these heads.
  void byKeys(dnn::Descriptor x, dnn::Descriptor y, int64_t depth, int64_t target, const int64_t (&strides)[3]) {
    const Shape shape{d.batch, d.heads, d.keys, d.queries};
    dnn::Descriptor turned =
        b.tensor(Inside + count++, type, shape, {d.heads * d.queries * d.keys, d.queries * d.keys, 1, d.keys},
                 GraphMaker::Place::Inside);
    operations.push_back(b.reshape(x, turned));
    dnn::Descriptor result = operand(target, d.kv_heads, d.keys, depth, strides);
    if (d.heads == d.kv_heads) {
      operations.push_back(b.gemm(turned, y, result));
      return;
    }
    dnn::Descriptor every = inside({d.batch, d.heads, d.keys, depth}, type);
    operations.push_back(b.gemm(turned, y, every));
    operations.push_back(b.reduction(dnn::ReduceAdd, every, result));
  }

  GraphMaker &b;
  const mpt_attention_desc &d;
  const int type;
  int64_t count = 0;
  dnn::Descriptor scale = nullptr;
  std::vector<dnn::Descriptor> operations;
};

bool isTaken(const mpt_attention_desc &d, const std::vector<void *> &pointers, bool gradient) {
  for (size_t i = 0; i < pointers.size(); ++i)
    if (!pointers[i] && (i != Bias - 1 || d.bias_type))
      return false;
  auto lines = [](const int64_t (&strides)[3]) {
    return std::all_of(strides, strides + 3, [](int64_t s) { return s > 0 && s % (graphAlignment / 2) == 0; });
  };
  bool ok = areAligned(pointers) && (d.type == MPT_FLOAT16 || d.type == MPT_BFLOAT16) && d.kv_heads > 0 &&
            d.heads % d.kv_heads == 0 && d.depth % 8 == 0 && d.value_depth % 8 == 0 && lines(d.q_strides) &&
            lines(d.k_strides) && lines(d.v_strides) && lines(d.o_strides);
  if (d.bias_type)
    ok = ok && (d.bias_type == d.type || d.bias_type == MPT_FLOAT32) && (d.bias_strides[3] == 1 || d.keys == 1);
  if (gradient)
    ok = ok && lines(d.do_strides) && lines(d.dq_strides) && lines(d.dk_strides) && lines(d.dv_strides);
  return ok;
}

/// Leaves out cases that NVIDIA's own frontend of cuDNN gives to no engine: releases whose attention is known to be
/// wrong, and on Blackwell releases before the one that it calls deterministic there. The engines' notes do not tell.
/// Before 9.10 it masks with finite values; a bias may hold infinities.
bool isTrusted(const mpt_attention_desc &d, size_t version, int arch, bool gradient) {
  if (version == 91000 || version == 91001 || (d.bias_type && version < 91000))
    return false;
  if (!gradient)
    return d.queries > 1 || !d.causal || version > 90900;
  return (version > 91500 || d.keys % 128 == 0) && (d.queries > 1 || d.keys > 1) &&
         (arch / 10 != 10 || version >= 91800);
}

/// The same plan for one part of batch and heads after the other.
class Parts : public GraphPlan {
public:
  Parts(std::shared_ptr<GraphPlan> one, int64_t batches, int64_t heads, std::vector<std::array<int64_t, 2>> steps)
      : one(std::move(one)), batches(batches), heads(heads), steps(std::move(steps)) {}
  mpt_status run(CudaDevice &device, const std::vector<void *> &pointers) override {
    std::vector<void *> part(pointers);
    for (int64_t n = 0; n < batches; ++n)
      for (int64_t h = 0; h < heads; ++h) {
        for (size_t i = 0; i < part.size(); ++i)
          if (pointers[i])
            part[i] = static_cast<uint8_t *>(pointers[i]) + n * steps[i][0] + h * steps[i][1];
        if (mpt_status status = one->run(device, part))
          return status;
      }
    return MPT_OK;
  }

private:
  const std::shared_ptr<GraphPlan> one;
  const int64_t batches, heads;
  const std::vector<std::array<int64_t, 2>> steps; // bytes to the next part, by operand
};

/// Into how many parts `extent` is cut so that each of them, `bytes` for all, fits into the scratch of a plan.
int64_t partsOf(int64_t extent, int64_t bytes, int64_t most) {
  int64_t parts = 1;
  while (parts < extent && (extent % parts || bytes / parts + 4096 > most))
    ++parts;
  return parts;
}

/// One part of a gradient: the engines keep the gradient of all probabilities, in 16 bits and whole tiles, where
/// nothing is summed up in memory.
mpt_attention_desc partOfGradient(const mpt_attention_desc &d, int64_t most) {
  auto tiles = [](int64_t extent) { return (extent + 127) / 128 * 128; };
  const int64_t bytes = d.batch * d.heads * tiles(d.queries) * tiles(d.keys) * 2,
                batches = partsOf(d.batch, bytes, most);
  const int64_t heads = batches == d.batch ? partsOf(d.kv_heads, bytes / batches, most) : 1;
  mpt_attention_desc part = d;
  part.batch /= batches;
  part.heads /= heads;
  part.kv_heads /= heads;
  return part;
}

std::shared_ptr<GraphPlan> planGradient(ConvLibrary &library, const mpt_attention_desc &d,
                                        const std::vector<void *> &pointers, int64_t most) {
  const mpt_attention_desc part = partOfGradient(d, most);
  const int64_t batches = d.batch / part.batch, heads = d.kv_heads / part.kv_heads;
  std::vector<std::array<int64_t, 2>> steps;
  auto step = [&](const int64_t *strides, int64_t ofHeads, int64_t size) {
    steps.push_back({part.batch * strides[0] * size, ofHeads * strides[1] * size});
  };
  const int64_t statistics[2] = {d.heads * d.queries, d.queries};
  step(d.q_strides, part.heads, 2);
  step(d.k_strides, part.kv_heads, 2);
  step(d.v_strides, part.kv_heads, 2);
  step(d.bias_strides, part.heads, d.bias_type == MPT_FLOAT32 ? 4 : 2);
  step(d.o_strides, part.heads, 2);
  step(statistics, part.heads, 4);
  step(d.do_strides, part.heads, 2);
  step(d.dq_strides, part.heads, 2);
  step(d.dk_strides, part.kv_heads, 2);
  step(d.dv_strides, part.kv_heads, 2);
  if (batches * heads > 1)
    for (const auto &bytesOf : steps)
      if (bytesOf[0] % graphAlignment || bytesOf[1] % graphAlignment)
        return nullptr;
  auto one = library.plans->find(requestAttention(part, true, library.api.GetVersion()), pointers);
  return one && batches * heads > 1 ? std::make_shared<Parts>(one, batches, heads, steps) : one;
}

bool isAsked(const CudaDevice &device, const ConvLibrary &library, const mpt_attention_desc &d,
             const std::vector<void *> &pointers, bool gradient) {
  return library.graphs && isTaken(d, pointers, gradient) &&
         isTrusted(d, library.api.GetVersion(), device.arch, gradient);
}

} // namespace

GraphRequest mpt::rt::requestAttention(const mpt_attention_desc &d, bool gradient, size_t version) {
  GraphForm form;
  form.make = [=](GraphMaker &b) {
    AttentionMaker maker(b, d);
    return gradient ? maker.gradient() : maker.forward();
  };
  form.ids = {Q, K, V, Bias, O, Stats}; // Bias goes without a pointer where there is none
  form.numbers = {{Scale, static_cast<float>(d.scale)}};
  if (d.causal)
    form.numbers.emplace_back(Masked, version < 91000 ? std::numeric_limits<float>::lowest()
                                                      : -std::numeric_limits<float>::infinity());
  form.name = gradient ? "gradient of attention" : "attention";
  if (gradient) {
    form.ids.insert(form.ids.end(), {GradientO, GradientQ, GradientK, GradientV, RowSums});
    form.numbers.emplace_back(One, 1.f);
    form.spares = 1;
    form.spareBytes = d.batch * d.heads * d.queries * 4;
  }
  return {(gradient ? "attention gradient " : "attention ") + wordsOf(d), {form}};
}

void mpt::rt::expectAttention(CudaDevice &device, ConvLibrary &library, const mpt_attention_desc &d,
                              const std::vector<void *> &pointers, bool gradient) {
  if (isAsked(device, library, d, pointers, gradient))
    library.plans->expect(requestAttention(gradient ? partOfGradient(d, ConvLibrary::workspaceBytes) : d, gradient,
                                           library.api.GetVersion()));
}

std::shared_ptr<GraphPlan> mpt::rt::planAttention(CudaDevice &device, ConvLibrary &library, const mpt_attention_desc &d,
                                                  const std::vector<void *> &pointers) {
  return isAsked(device, library, d, pointers, false)
             ? library.plans->find(requestAttention(d, false, library.api.GetVersion()), pointers)
             : nullptr;
}

std::shared_ptr<GraphPlan> mpt::rt::planAttentionGradient(CudaDevice &device, ConvLibrary &library,
                                                          const mpt_attention_desc &d,
                                                          const std::vector<void *> &pointers, int64_t most) {
  return isAsked(device, library, d, pointers, true) ? planGradient(library, d, pointers, most) : nullptr;
}
