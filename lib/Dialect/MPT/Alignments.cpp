// SPDX-License-Identifier: Apache-2.0
// The recursion of CTC in elementwise ops: one step, and all steps unrolled.
#include "mpt/Dialect/MPT/Alignments.h"

using namespace mlir;
using namespace mpt;

namespace {

using Values = SmallVector<Value>;

/// x[.., s - by], and `outside` before the first state; with a negative `by`, from the states behind.
Value shifted(GraphBuilder &b, Value x, int64_t by, double outside) {
  int64_t batch = tensorType(x).getDimSize(0), states = tensorType(x).getDimSize(1), width = std::abs(by);
  Value fill = b.splat(tensorType(x).clone({batch, width}), outside);
  Value rest = b.slice(x, {0, by > 0 ? 0 : width}, {batch, states - width});
  return by > 0 ? b.concat({fill, rest}, 1) : b.concat({rest, fill}, 1);
}

/// The exponentials of the states that lead to each state (itself, the one before, and the one before that), brought
/// near 1 by `shift`. Where all terms are `kNever`, so is the logarithm of their sum.
struct Arrivals {
  Arrivals(GraphBuilder &b, Value alpha, Value skips) {
    // FP16 has -infinity in the place of `kNever`.
    alpha = b.make<MaxOp>(alpha, b.splatLike(alpha, kNever));
    Value terms[] = {alpha, shifted(b, alpha, 1, kNever), b.add(shifted(b, alpha, 2, kNever), skips)};
    shift = b.make<FloorOp>(b.make<MaxOp>(b.make<MaxOp>(terms[0], terms[1]), terms[2]));
    for (Value term : terms) {
      parts.push_back(b.make<ExpOp>(b.sub(term, shift)));
      sum = sum ? b.add(sum, parts.back()) : parts.back();
    }
  }
  Values parts;
  Value shift, sum;
};

Value runs(GraphBuilder &b, Value open, Value like) {
  return b.broadcastAlong(b.compare(Predicate::gt, open, 0.5), tensorType(like).getShape(), {1});
}

/// Unrolled, each step becomes some dozens of ops.
constexpr int64_t mostSteps = 1 << 13;

/// Shared by both passes over the steps.
template <typename Op> struct Unrolled {
  Unrolled(OpBuilder &builder, Op op)
      : b(builder, op.getLoc()), op(op), type(tensorType(op.getAlphas())), steps(type.getDimSize(0)),
        batch(type.getDimSize(1)), states(type.getDimSize(2)), skips(b.widen(op.getSkips())) {}

  GraphBuilder b;
  Op op;
  RankedTensorType type;
  int64_t steps, batch, states;
  Value skips;

  LogicalResult check() {
    if (steps <= mostSteps)
      return success();
    return op.emitOpError() << "expected at most " << mostSteps << " steps where they are unrolled, got " << steps
                            << "; split the sequence";
  }
  Value at(Value x, int64_t t) {
    return b.widen(b.reshape(b.slice(x, {t, 0, 0}, {1, batch, states}), {batch, states}));
  }
  Value openAt(int64_t t) { return b.widen(b.reshape(b.slice(op.getOpen(), {t, 0}, {1, batch}), {batch})); }
  /// As the result holds it.
  Value rounded(Value x) { return b.cast(x, type.getElementType()); }
  Value stack(ArrayRef<Value> parts) {
    Values rows;
    for (Value part : parts)
      rows.push_back(b.reshape(part, {1, batch, states}));
    return rows.size() == 1 ? rows.front() : b.concat(rows, 0);
  }
};

} // namespace

Value mpt::alignmentStart(GraphBuilder &b, RankedTensorType type) {
  int64_t batch = type.getDimSize(0), states = type.getDimSize(1);
  return b.concat({b.splat(type.clone({batch, 1}), 0.0), b.splat(type.clone({batch, states - 1}), kNever)}, 1);
}

Value mpt::alignmentStep(GraphBuilder &b, Value alpha, Value emission, Value skips, Value open) {
  Arrivals arrivals(b, alpha, skips);
  Value next = b.add(emission, b.add(b.make<LogOp>(arrivals.sum), arrivals.shift));
  return b.select(runs(b, open, alpha), next, alpha);
}

Value mpt::alignmentGradient(GraphBuilder &b, Value gradient, Value alpha, Value skips, Value open) {
  Arrivals arrivals(b, alpha, skips);
  // Shares of each sum go back to where its terms came from. They add up to the gradient.
  Value share = b.div(gradient, arrivals.sum), total = b.mul(share, arrivals.parts[0]);
  for (int64_t by : {1, 2})
    total = b.add(total, shifted(b, b.mul(share, arrivals.parts[by]), -by, 0.0));
  return b.select(runs(b, open, alpha), total, gradient);
}

FailureOr<Values> AlignmentsOp::decompose(OpBuilder &builder) {
  Unrolled<AlignmentsOp> u(builder, *this);
  if (failed(u.check()))
    return failure();
  Value alpha = alignmentStart(u.b, tensorType(u.skips));
  Values alphas;
  for (int64_t t = 0; t < u.steps; ++t) {
    alphas.push_back(u.rounded(alignmentStep(u.b, alpha, u.at(getEmissions(), t), u.skips, u.openAt(t))));
    alpha = u.b.widen(alphas.back());
  }
  return Values{alphas.back(), u.stack(alphas)};
}

FailureOr<Values> AlignmentsBackwardOp::decompose(OpBuilder &builder) {
  Unrolled<AlignmentsBackwardOp> u(builder, *this);
  if (failed(u.check()))
    return failure();
  Values gradients(u.steps, getDlast());
  for (int64_t t = u.steps - 1; t > 0; --t)
    gradients[t - 1] =
        u.rounded(alignmentGradient(u.b, u.b.widen(gradients[t]), u.at(getAlphas(), t - 1), u.skips, u.openAt(t)));
  return Values{u.stack(gradients)};
}
