// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: the inputs of the recursion over all alignments, and its result.
#include "mpt/Autodiff/LossFormulas.h"

#include "mpt/Dialect/MPT/Alignments.h"

using namespace mlir;
using namespace mpt;

namespace {

class Alignments {
public:
  Alignments(GraphBuilder &b, const LossSpec &spec, Value scores, Value labels)
      : b(b), blank(spec.blank), steps(extent(scores, 0)), batch(extent(scores, 1)), classes(extent(scores, 2)),
        most(extent(labels, 1)), states(2 * most + 1), type(tensorType(scores).getElementType()) {
    Value x = b.make<LogSoftmaxOp>(scores.getType(), scores, b.builder.getI64IntegerAttr(2));
    log = b.make<MaxOp>(x, b.splatLike(x, kNever));
    this->labels = spec.ignoreIndex ? padded(labels, *spec.ignoreIndex) : labels;
  }

  /// -log of the probability of all alignments [batch], with `labelCounts` as numbers; `kNever` times -1 and more where
  /// there is none.
  Value loss(Value inputLengths, Value labelCounts) {
    Value alpha = steps > 0 ? b.make<AlignmentsOp>(emissionsOfStates(), skipsOfStates(), running(inputLengths))
                            : alignmentStart(b, of({batch, states}));
    return b.neg(total(alpha, labelCounts));
  }

  /// Lengths [batch] as floating-point numbers. Lengths outside [0, most] demand an index that no gather has.
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

  /// 1 where a sequence has not ended at a step, else 0 [steps, batch].
  Value running(Value lengths) {
    Value ends = b.broadcastAlong(asNumbers(lengths, steps), {steps, batch}, {0});
    Value runs = b.compare(Predicate::gt, ends, b.make<IotaOp>(of({steps, batch}), 0));
    return b.select(runs, b.splatLike(ends, 1.0), b.splatLike(ends, 0.0));
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

  /// 0 where the blank between two labels may be left out, `kNever` elsewhere [batch, states].
  Value skipsOfStates() {
    Value closed = b.splat(of({batch, 1}), kNever), open = closed;
    if (most > 1) {
      Value after = b.slice(labels, {0, 1}, {batch, most - 1}), before = b.slice(labels, {0, 0}, {batch, most - 1});
      Value differs = b.compare(Predicate::ne, after, before);
      RankedTensorType rest = of({batch, most - 1});
      open = b.concat({closed, b.select(differs, b.splat(rest, 0.0), b.splat(rest, kNever))}, 1);
    }
    return interleaved(closed, open);
  }

  /// Alignments end in the last label or the blank behind it.
  Value total(Value alpha, Value labelCounts) {
    SmallVector<int64_t> shape = {batch, states};
    Value last = b.broadcastAlong(b.mul(labelCounts, 2.0), shape, {1});
    Value position = b.make<IotaOp>(of(shape), 1);
    Value off = b.make<AbsOp>(b.add(b.sub(position, last), 0.5)); // 0.5 at both
    Value ends = b.select(b.compare(Predicate::lt, off, 1.0), alpha, b.splatLike(alpha, kNever));
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
  Value impossible = b.compare(Predicate::gt, each, -kNever / 2);
  double instead = spec.zeroInfinity ? 0.0 : std::numeric_limits<double>::infinity();
  each = b.select(impossible, b.splatLike(each, instead), each);
  return b.mean(b.div(each, b.make<MaxOp>(length, b.splatLike(length, 1.0))), {0});
}
