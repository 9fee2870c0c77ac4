// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: the forward recursion over all alignments, in logarithms.
#include "mpt/Autodiff/LossFormulas.h"

using namespace mlir;
using namespace mpt;

namespace {

/// The logarithm of what cannot be. Not -infinity: differences of these stay numbers, and so do their gradients.
constexpr double never = -1e30;

/// The logarithm of the sum of exponentials of what `shift` brings near 0. Where all terms are `never`, so is the sum.
/// floor() has no gradient: the shift cancels, and is not differentiated.
Value logOfSum(GraphBuilder &b, ArrayRef<Value> terms) {
  Value shift = terms.front(), sum;
  for (Value term : terms.drop_front())
    shift = b.make<MaxOp>(shift, term);
  shift = b.make<FloorOp>(shift);
  for (Value term : terms) {
    Value part = b.make<ExpOp>(b.sub(term, shift));
    sum = sum ? b.add(sum, part) : part;
  }
  return b.add(b.make<LogOp>(sum), shift);
}

class Alignments {
public:
  Alignments(GraphBuilder &b, const LossSpec &spec, Value scores, Value labels)
      : b(b), blank(spec.blank), steps(extent(scores, 0)), batch(extent(scores, 1)), classes(extent(scores, 2)),
        most(extent(labels, 1)), states(2 * most + 1), type(tensorType(scores).getElementType()) {
    Value x = b.make<LogSoftmaxOp>(scores.getType(), scores, b.builder.getI64IntegerAttr(2));
    log = b.make<MaxOp>(x, b.splatLike(x, never));
    this->labels = spec.ignoreIndex ? padded(labels, *spec.ignoreIndex) : labels;
  }

  /// -log of the probability of all alignments [batch], with `labelCounts` as numbers; `never` times -1 and more where
  /// there is none.
  Value loss(Value inputLengths, Value labelCounts) {
    Value emissions = emissionsOfStates(), skips = skipsOfStates();
    Value open = running(inputLengths);
    // Before the first step all is in the first state, from where a step leads to the first blank or label.
    Value start = b.splat(of({batch, 1}), 0.0);
    Value alpha = states > 1 ? b.concat({start, b.splat(of({batch, states - 1}), never)}, 1) : start;
    for (int64_t t = 0; t < steps; ++t) {
      Value emission = b.reshape(b.slice(emissions, {t, 0, 0}, {1, batch, states}), {batch, states});
      Value next = b.add(emission, logOfSum(b, arrivals(alpha, skips)));
      Value runs = b.reshape(b.slice(open, {t, 0}, {1, batch}), {batch});
      alpha = b.select(b.broadcastAlong(runs, {batch, states}, {1}), next, alpha);
    }
    return b.neg(total(alpha, labelCounts));
  }

  /// Lengths [batch] as floating-point numbers. Those that are not in [0, most] demand an index that no gather has.
  Value asNumbers(Value lengths, int64_t most) {
    SmallVector<APFloat> numbers;
    for (int64_t i = 0; i <= most; ++i) {
      APFloat &number = numbers.emplace_back(static_cast<double>(i));
      bool inexact;
      number.convert(cast<FloatType>(type).getFloatSemantics(), APFloat::rmNearestTiesToEven, &inexact);
    }
    Value table = b.constant(DenseElementsAttr::get(of({most + 1}), numbers));
    return b.make<GatherOp>(table, asClassIndices(b, lengths, most + 1), 0);
  }

private:
  static int64_t extent(Value value, int64_t dim) { return tensorType(value).getDimSize(dim); }
  RankedTensorType of(ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, type); }

  /// Which sequences have not ended at each step [steps, batch].
  Value running(Value lengths) {
    Value ends = b.broadcastAlong(asNumbers(lengths, steps), {steps, batch}, {0});
    return b.compare(Predicate::gt, ends, b.make<IotaOp>(of({steps, batch}), 0));
  }

  /// Labels that say that there is none become blanks.
  Value padded(Value labels, int64_t padding) {
    auto none = b.constant(DenseElementsAttr::get(tensorType(labels), padding));
    return b.select(b.compare(Predicate::eq, labels, none), b.splatLike(labels, static_cast<double>(blank)), labels);
  }

  /// first, then each of `second` [.., most] behind one more `first`: [.., states].
  Value interleaved(Value first, Value second) {
    ArrayRef<int64_t> shape = tensorType(second).getShape();
    int64_t rank = tensorType(second).getRank();
    SmallVector<int64_t> column(shape), flat(shape);
    column.push_back(1);
    flat.back() *= 2;
    Value repeated = b.broadcastAlong(b.reshape(first, shape.drop_back()), shape, {rank - 1});
    Value both = b.concat({b.reshape(repeated, column), b.reshape(second, column)}, rank);
    return b.concat({b.reshape(both, flat), first}, rank - 1);
  }

  /// Log-probabilities of blank, label, blank, ... at each step [steps, batch, states].
  Value emissionsOfStates() {
    Value blanks = b.slice(log, {0, 0, blank}, {steps, batch, 1});
    Value indices = b.broadcastAlong(asClassIndices(b, labels, classes), {steps, batch, most}, {0});
    return interleaved(blanks, b.make<GatherElementsOp>(log, indices, 2));
  }

  /// 0 where the blank between two labels may be left out, `never` elsewhere [batch, states].
  Value skipsOfStates() {
    Value closed = b.splat(of({batch, 1}), never), open = closed;
    if (most > 1) {
      Value after = b.slice(labels, {0, 1}, {batch, most - 1}), before = b.slice(labels, {0, 0}, {batch, most - 1});
      Value differs = b.compare(Predicate::ne, after, before);
      RankedTensorType rest = of({batch, most - 1});
      open = b.concat({closed, b.select(differs, b.splat(rest, 0.0), b.splat(rest, never))}, 1);
    }
    return interleaved(closed, open);
  }

  /// The states from which each state is reached, as it was before: itself, the one before, and the one before that.
  SmallVector<Value> arrivals(Value alpha, Value skips) {
    auto behind = [&](int64_t by) {
      return b.concat({b.splat(of({batch, by}), never), b.slice(alpha, {0, 0}, {batch, states - by})}, 1);
    };
    return {alpha, behind(1), b.add(behind(2), skips)};
  }

  /// Alignments end in the last label or the blank behind it.
  Value total(Value alpha, Value labelCounts) {
    SmallVector<int64_t> shape = {batch, states};
    Value last = b.broadcastAlong(b.mul(labelCounts, 2.0), shape, {1});
    Value position = b.make<IotaOp>(of(shape), 1);
    Value off = b.make<AbsOp>(b.add(b.sub(position, last), 0.5)); // 0.5 at both
    Value ends = b.select(b.compare(Predicate::lt, off, 1.0), alpha, b.splatLike(alpha, never));
    Value shift = b.make<FloorOp>(b.reduce(ReduceKind::max, ends, {1}));
    Value sum = b.sum(b.make<ExpOp>(b.sub(ends, b.broadcastAlong(shift, shape, {1}))), {1});
    return b.add(b.make<LogOp>(sum), shift);
  }

  GraphBuilder &b;
  int64_t blank, steps, batch, classes, most, states;
  Type type;
  Value log, labels;
};

} // namespace

Value mpt::lossOfSequences(GraphBuilder &b, const LossSpec &spec, Value scores, const SequenceTargets &targets) {
  Alignments alignments(b, spec, scores, targets.labels);
  Value length = alignments.asNumbers(targets.labelLengths, tensorType(targets.labels).getDimSize(1));
  Value each = alignments.loss(targets.inputLengths, length);
  Value impossible = b.compare(Predicate::gt, each, -never / 2);
  double instead = spec.zeroInfinity ? 0.0 : std::numeric_limits<double>::infinity();
  each = b.select(impossible, b.splatLike(each, instead), each);
  return b.mean(b.div(each, b.make<MaxOp>(length, b.splatLike(length, 1.0))), {0});
}
