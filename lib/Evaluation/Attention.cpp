// SPDX-License-Identifier: Apache-2.0
// Attention as library.attention and library.attention_gradient say it. Scores and sums are FP64 rounded to FP32 once;
// probabilities, behind dropout, and the gradients of scores are rounded to the operands' type before they enter GEMMs.
#include "Rules.h"

#include "mpt/Dialect/Library/LibraryDialect.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// The operands of one head, and its scores.
struct Head {
  int64_t queries, keys, depth, valueDepth;
  const double *q, *k, *v;
  std::vector<double> scores; ///< with the mask
};

double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Calls `body(head, number of q's head, number of k's head)` for all heads of all batches.
template <typename Op>
void forEachHead(Op op, InterpreterFrame &frame, llvm::function_ref<void(Head &, int64_t, int64_t)> body) {
  Tensor q = frame.get(op.getQ()), k = frame.get(op.getK()), v = frame.get(op.getV()), bias;
  if (op.getBias())
    bias = frame.get(op.getBias());
  int64_t batch = q.shape()[0], heads = q.shape()[1], keyHeads = k.shape()[1];
  Head head{q.shape()[2], k.shape()[2], q.shape()[3], v.shape()[3], nullptr, nullptr, nullptr, {}};
  double scale = op.getScale().convertToDouble();
  FloatType f32 = Float32Type::get(op.getContext());
  for (int64_t n = 0; n < batch * heads; ++n) {
    int64_t own = n / heads * keyHeads + n % heads / (heads / keyHeads);
    head.q = q.reals().data() + n * head.queries * head.depth;
    head.k = k.reals().data() + own * head.keys * head.depth;
    head.v = v.reals().data() + own * head.keys * head.valueDepth;
    head.scores.assign(head.queries * head.keys, 0);
    for (int64_t i = 0; i < head.queries; ++i)
      for (int64_t j = 0; j < head.keys; ++j) {
        double &score = head.scores[i * head.keys + j];
        score = scale * dot(head.q + i * head.depth, head.k + j * head.depth, head.depth);
        if (bias) {
          ArrayRef<int64_t> s = bias.shape();
          int64_t at = ((n / heads % s[0] * s[1] + n % heads % s[1]) * s[2] + i % s[2]) * s[3] + j;
          score += bias.reals()[at];
        }
        if (op.getCausal() && j > i)
          score = -INFINITY;
      }
    if (!frame.isOracle())
      withRounding(f32, [&](auto round) {
        for (double &score : head.scores)
          score = round(score);
      });
    body(head, n, own);
  }
}

/// Values as operands of a GEMM of type `element` take them.
void roundTo(Type element, InterpreterFrame &frame, std::vector<double> &values) {
  if (!frame.isOracle())
    withRounding(cast<FloatType>(element), [&](auto round) {
      for (double &x : values)
        x = round(x);
    });
}

/// e^(score - stats); a row without keys has zeros.
double probability(double score, double stats) { return std::isinf(stats) && stats < 0 ? 0 : std::exp(score - stats); }

/// Factors of dropout on the probabilities of one head: 0, or 1 / (1 - ratio); 1 without dropout.
template <typename Op> std::vector<double> dropoutFactors(Op op, InterpreterFrame &frame, const Head &head, int64_t n) {
  std::vector<double> factors(head.scores.size(), 1);
  if (!op.getKey())
    return factors;
  double ratio = op.getRatio().convertToDouble();
  RandomWords words(frame.get(op.getKey()), static_cast<int64_t>(op.getStream()));
  auto threshold = static_cast<uint64_t>(std::floor(std::ldexp(ratio, 32)));
  for (auto [i, factor] : llvm::enumerate(factors))
    factor = words[static_cast<uint64_t>(n) * factors.size() + i] >= threshold ? 1 / (1 - ratio) : 0;
  return factors;
}

/// sums += a b or a^T b, with b's rows of `n` elements.
void multiply(double *sums, const double *a, const double *b, int64_t m, int64_t k, int64_t n, int64_t aRow,
              int64_t aColumn, double factor = 1) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      addProducts(sums + i * n, factor * a[i * aRow + p * aColumn], b + p * n, n, [](double x) { return x; });
}

LogicalResult interpretAttention(library::AttentionOp op, InterpreterFrame &frame) {
  Tensor o = frame.zeros(op.getO()), stats = frame.zeros(op.getStats());
  double *os = o.writeReals().data(), *logs = stats.writeReals().data();
  forEachHead(op, frame, [&](Head &head, int64_t n, int64_t) {
    for (int64_t i = 0; i < head.queries; ++i) {
      double *row = head.scores.data() + i * head.keys, top = *std::max_element(row, row + head.keys), sum = 0;
      for (int64_t j = 0; j < head.keys; ++j)
        sum += std::isinf(top) && top < 0 ? 0 : std::exp(row[j] - top);
      double log = logs[n * head.queries + i] = sum == 0 ? -INFINITY : top + std::log(sum);
      for (int64_t j = 0; j < head.keys; ++j)
        row[j] = probability(row[j], log);
    }
    for (auto [p, factor] : llvm::zip_equal(head.scores, dropoutFactors(op, frame, head, n)))
      p *= factor;
    roundTo(o.getElementType(), frame, head.scores);
    multiply(os + n * head.queries * head.valueDepth, head.scores.data(), head.v, head.queries, head.keys,
             head.valueDepth, head.keys, 1);
  });
  frame.set(op.getO(), std::move(o));
  frame.set(op.getStats(), std::move(stats));
  return success();
}

LogicalResult interpretAttentionGradient(library::AttentionGradientOp op, InterpreterFrame &frame) {
  Tensor dq = frame.zeros(op.getDq()), dk = frame.zeros(op.getDk()), dv = frame.zeros(op.getDv());
  Tensor o = frame.get(op.getO()), dO = frame.get(op.getDO()), stats = frame.get(op.getStats());
  double *dqs = dq.writeReals().data(), *dks = dk.writeReals().data(), *dvs = dv.writeReals().data();
  double scale = op.getScale().convertToDouble();
  forEachHead(op, frame, [&](Head &head, int64_t n, int64_t own) {
    const double *os = o.reals().data() + n * head.queries * head.valueDepth;
    const double *grads = dO.reals().data() + n * head.queries * head.valueDepth;
    std::vector<double> ds(head.scores.size()), factors = dropoutFactors(op, frame, head, n);
    for (int64_t i = 0; i < head.queries; ++i) {
      const double *grad = grads + i * head.valueDepth;
      double delta = dot(os + i * head.valueDepth, grad, head.valueDepth);
      for (int64_t j = 0; j < head.keys; ++j) {
        const int64_t at = i * head.keys + j;
        double &p = head.scores[at];
        p = probability(p, stats.reals()[n * head.queries + i]);
        ds[at] = p * (factors[at] * dot(grad, head.v + j * head.valueDepth, head.valueDepth) - delta);
        p *= factors[at];
      }
    }
    roundTo(o.getElementType(), frame, head.scores);
    roundTo(o.getElementType(), frame, ds);
    multiply(dqs + n * head.queries * head.depth, ds.data(), head.k, head.queries, head.keys, head.depth, head.keys, 1,
             scale);
    multiply(dks + own * head.keys * head.depth, ds.data(), head.q, head.keys, head.queries, head.depth, 1, head.keys,
             scale);
    multiply(dvs + own * head.keys * head.valueDepth, head.scores.data(), grads, head.keys, head.queries,
             head.valueDepth, 1, head.keys);
  });
  frame.set(op.getDq(), std::move(dq));
  frame.set(op.getDk(), std::move(dk));
  frame.set(op.getDv(), std::move(dv));
  return success();
}

} // namespace

void mpt::attachAttentionRules(MLIRContext *context) {
  attachRule<library::AttentionOp, interpretAttention, AccessPattern::Windows>(context);
  attachRule<library::AttentionGradientOp, interpretAttentionGradient, AccessPattern::Windows>(context);
}
