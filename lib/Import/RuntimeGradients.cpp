// SPDX-License-Identifier: Apache-2.0
// Gradient operators of ONNX Runtime Training (com.microsoft): the backward pass that its artifacts carry.
// Each becomes the core op that differentiation makes of its forward operator, or the ops of its decomposition.
#include "RuntimeGradients.h"

#include "ClassRows.h"
#include "Converter.h"
#include "Join.h"
#include "Windows.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;
using namespace mpt;

/// The core op `Op` that `value` is a result of, through casts, shapes and arithmetic on positions.
template <typename Op> static Op sourceOf(Value value) {
  SmallVector<Value> work{value};
  for (int steps = 0; steps < 16 && !work.empty(); ++steps) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op)
      continue;
    if (auto found = dyn_cast<Op>(op))
      return found;
    llvm::append_range(work, llvm::reverse(op->getOperands()));
  }
  return {};
}

static LogicalResult expectLike(Binder &b, unsigned i, Value like) {
  if (b.in(i).getType() != like.getType())
    return b.fail() << "expected operand " << i << " of type " << like.getType() << ", got " << b.in(i).getType();
  return success();
}

static LogicalResult expectShape(Binder &b, unsigned i, ArrayRef<int64_t> shape) {
  if (b.shape(i) != shape)
    return b.fail() << "expected operand " << i << " of shape [" << shape << "], got " << b.in(i).getType();
  return success();
}

/// dY, then the forward result or input, of one type.
template <typename Op> static LogicalResult importSlope(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  return b.done(b.make<Op>(b.in(0), b.in(1)));
}

static LogicalResult importLeakyReluGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  Value kept = b.compare(Predicate::gt, b.in(1), 0.0);
  return b.done(b.select(kept, b.in(0), b.mul(b.in(0), b.floatAttr("alpha", 0.01))));
}

/// The tanh form where the forward operator at the same input is: ONNX Runtime 1.19.2 writes GeluGrad for both.
static GeluForm formOf(Binder &b, GeluForm said) {
  for (Operation *user : b.node.getInputs()[1].getUsers()) {
    auto forward = dyn_cast<onnx::NodeOp>(user);
    auto form =
        forward && forward.getOpType() == "Gelu" ? forward.getAttrs().getAs<StringAttr>("approximate") : StringAttr();
    if (form && form.getValue() == "tanh" && said == GeluForm::erf) {
      b.warn()
          << "the file has the gradient of the exact form where the forward pass has the tanh form, as ONNX Runtime "
             "1.19.2 writes it: replaced by the gradient of the tanh form";
      return GeluForm::tanh;
    }
  }
  return said;
}

template <GeluForm said> static LogicalResult importGeluGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  FailureOr<Value> x = b.plusOptional(b.in(1), 2);
  if (failed(x))
    return failure();
  return b.done(b.make<GeluBackwardOp>(b.in(0).getType(), b.in(0), *x, formOf(b, said)));
}

/// y = x s(alpha x), s the sigmoid: dx = dy s (1 + alpha x (1 - s)).
static LogicalResult importQuickGeluGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  Value x = b.mul(b.widen(b.in(1)), b.floatAttr("alpha", 1.702));
  Value s = b.make<SigmoidOp>(x), slope = b.mul(s, b.add(b.mul(x, b.add(b.neg(s), 1.0)), 1.0));
  return b.done(b.mul(b.in(0), b.cast(slope, b.element(0))));
}

template <typename Op, bool negative> static LogicalResult importWaveGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  Value dx = b.mul(b.in(0), b.make<Op>(b.in(1)));
  return b.done(negative ? b.neg(dx) : dx);
}

/// Y or log Y of softmax along an axis; before opset 13 all axes from `axis` on are one.
template <typename Op, bool flatten> static LogicalResult importSoftmaxGrad(Binder &b) {
  if (failed(b.needFloat(2, 1)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", flatten ? 1 : -1), b.rank(0));
  if (failed(axis))
    return failure();
  Type type = b.in(0).getType();
  if (!flatten || *axis == b.rank(0) - 1)
    return b.done(b.make<Op>(type, b.in(0), b.in(1), b.i64(*axis)));
  int64_t outer = 1, inner = 1;
  for (auto [i, extent] : llvm::enumerate(b.shape(0)))
    (static_cast<int64_t>(i) < *axis ? outer : inner) *= extent;
  Value dy = b.reshape(b.in(0), {outer, inner}), y = b.reshape(b.in(1), {outer, inner});
  return b.done(b.reshape(b.make<Op>(dy.getType(), dy, y, b.i64(1)), b.shape(0)));
}

/// dY, log_prob, labels, weight. Log-probabilities are logits whose sum of exponentials is 1.
static LogicalResult importSoftmaxCrossEntropyGrad(Binder &b) {
  if (failed(b.needFloat(2, 0)) || failed(b.need(3)))
    return failure();
  ArrayRef<int64_t> scores = b.shape(1);
  SmallVector<int64_t> samples(scores);
  if (samples.size() < 2)
    return b.fail() << "expected log-probabilities [N, C, ...], got " << b.in(1).getType();
  samples.erase(samples.begin() + 1);
  if (b.shape(2) != ArrayRef<int64_t>(samples) || b.isFloat(2))
    return b.fail() << "expected integer labels [" << samples << "], got " << b.in(2).getType();
  if (b.has(3) && failed(expectShape(b, 3, {scores[1]})))
    return failure();
  StringRef text = b.stringAttr("reduction", "mean");
  LossReduction reduction = text == "none"  ? LossReduction::none
                            : text == "sum" ? LossReduction::sum
                                            : LossReduction::mean;
  auto ignored = dyn_cast_or_null<IntegerAttr>(b.attr("ignore_index"));
  Value logits = classRows(b, b.in(1)), weights = b.has(3) ? b.in(3) : Value();
  int64_t rows = tensorType(logits).getDimSize(0);
  Value labels = b.reshape(b.in(2), {rows});
  Type f32 = b.builder.getF32Type();
  Value logSum, total;
  // The forward operator's own logits and sums, where it is there.
  auto node = b.node.getInputs()[1].getDefiningOp<onnx::NodeOp>();
  Value loss = node && node.getOpType() == "SoftmaxCrossEntropyLoss" ? b.converter.lookup(node.getResult(0)) : Value();
  if (auto forward = loss ? sourceOf<SoftmaxCrossEntropyOp>(loss) : SoftmaxCrossEntropyOp()) {
    logits = forward.getLogits();
    logSum = forward.getLogSumExp();
    total = forward.getTotal();
  } else {
    logSum = b.splat(RankedTensorType::get({rows}, f32), 0.0);
    Value weight = logSum;
    if (weights)
      weight = b.cast(b.make<GatherOp>(weights, labels, 0), f32);
    else
      weight = b.splat(tensorType(logSum), 1.0);
    if (ignored)
      weight = b.select(b.compare(Predicate::ne, labels, static_cast<double>(ignored.getInt())), weight, logSum);
    total = b.sum(weight, {0});
  }
  Value dloss = b.cast(b.in(0), f32);
  dloss = reduction == LossReduction::none ? b.reshape(dloss, {rows}) : b.reshape(dloss, {});
  Value dx = SoftmaxCrossEntropyBackwardOp::create(b.builder, b.loc, dloss, logits, labels, logSum, total, weights,
                                                   LossReductionAttr::get(b.builder.getContext(), reduction),
                                                   ignored ? b.i64(ignored.getInt()) : IntegerAttr());
  SmallVector<int64_t> last(samples), order = {0, static_cast<int64_t>(samples.size())};
  last.push_back(scores[1]);
  order.append(axisRange(1, samples.size()));
  return b.done(b.cast(b.transpose(b.reshape(dx, last), order), b.element(1)));
}

/// Sum over all axes but the channels.
static Value channelSum(Binder &b, Value dy) {
  SmallVector<int64_t> axes = otherAxes(tensorType(dy).getRank(), {1});
  return b.cast(b.sum(b.widen(dy), axes), tensorType(dy).getElementType());
}

static LogicalResult importConvGrad(Binder &b) {
  int64_t groups = b.intAttr("group", 1);
  ArrayRef<int64_t> x = b.shape(1), w = b.shape(2);
  if (x.size() != w.size() || x.size() != b.shape(0).size() || groups < 1 || x[1] != groups * w[1])
    return b.fail() << "expected dY, X and W of one rank and matching channels, got " << b.in(0).getType() << ", "
                    << b.in(1).getType() << " and " << b.in(2).getType();
  b.ignore({"kernel_shape"});
  FailureOr<Window> window = windowOf(b, x.drop_front(2), w.drop_front(2));
  if (failed(window))
    return failure();
  auto grad = [&](auto op, Value like, Value first, Value second) {
    using Op = decltype(op);
    return b.make<Op>(like.getType(), first, second, b.list(window->strides), b.list(window->dilations),
                      b.list(window->low), b.list(window->high), b.i64(groups), NumericsAttr());
  };
  if ((b.wants(0) && failed(b.set(0, grad(ConvBackwardDataOp(), b.in(1), b.in(0), b.in(2))))) ||
      (b.wants(1) && failed(b.set(1, grad(ConvBackwardWeightsOp(), b.in(2), b.in(1), b.in(0))))) ||
      (b.wants(2) && failed(b.set(2, channelSum(b, b.in(0))))))
    return failure();
  return success();
}

/// The forward operator is a convolution's data gradient: its windows are that op's.
static LogicalResult importConvTransposeGrad(Binder &b) {
  b.ignore({"auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"});
  if (failed(b.needFloat(3, 3)))
    return failure();
  ConvBackwardDataOp forward;
  for (Operation *user : b.in(1).getUsers())
    if (auto op = dyn_cast<ConvBackwardDataOp>(user); op && op.getDy() == b.in(1) && op.getW() == b.in(2))
      forward = op;
  if (!forward || forward.getY().getType() != b.in(0).getType())
    return b.fail() << "expected a ConvTranspose of the same operands in the forward pass, got none";
  auto grad = [&](auto op, Value like, Value first, Value second) {
    using Op = decltype(op);
    return b.make<Op>(like.getType(), first, second, forward.getStridesAttr(), forward.getDilationsAttr(),
                      forward.getPadsLowAttr(), forward.getPadsHighAttr(), forward.getGroupsAttr(), NumericsAttr());
  };
  if ((b.wants(0) && failed(b.set(0, grad(ConvOp(), b.in(1), b.in(0), b.in(2))))) ||
      (b.wants(1) && failed(b.set(1, grad(ConvBackwardWeightsOp(), b.in(2), b.in(0), b.in(1))))) ||
      (b.wants(2) && failed(b.set(2, channelSum(b, b.in(0))))))
    return failure();
  return success();
}

static LogicalResult importBatchNormalizationGrad(Binder &b) {
  if (failed(b.needFloat(5, 2)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  SmallVector<int64_t> shape(b.shape(0));
  for (unsigned i : {2u, 3u, 4u})
    if (failed(expectShape(b, i, {shape[1]})))
      return failure();
  b.ignore({"epsilon", "momentum", "training_mode"});
  Value dy = b.in(0), x = b.in(1), mean = b.cast(b.in(3), b.builder.getF32Type()), variance;
  double epsilon = 0;
  // The fifth operand is the inverse deviation; the forward op has the variance itself.
  if (auto forward = b.in(3).getDefiningOp<BatchNormOp>()) {
    variance = forward.getVariance();
    epsilon = forward.getEpsilon().convertToDouble();
  } else {
    Value inv = b.cast(b.in(4), b.builder.getF32Type());
    variance = b.make<ReciprocalOp>(b.mul(inv, inv));
  }
  if (shape.size() == 2) {
    dy = b.reshape(dy, {shape[0], shape[1], 1});
    x = b.reshape(x, {shape[0], shape[1], 1});
  }
  auto op = BatchNormBackwardOp::create(b.builder, b.loc, dy, x, b.in(2), mean, variance, b.f64(epsilon));
  if (failed(b.set(0, b.reshape(op.getDx(), shape))) || failed(b.set(1, b.cast(op.getDscale(), b.element(2)))) ||
      failed(b.set(2, b.cast(op.getDbias(), b.element(2)))))
    return failure();
  return success();
}

/// A statistic with the normalized axes as 1, or without them.
static Value dropAxes(Binder &b, Value statistic, int64_t axis, ArrayRef<int64_t> x) {
  return b.cast(b.reshape(statistic, x.take_front(axis)), b.builder.getF32Type());
}

/// dY, X, scale, mean (not for RMS), inverse deviation.
template <bool rms> static LogicalResult importNormGrad(Binder &b) {
  if (failed(b.needFloat(rms ? 4 : 5, 1)) || failed(expectLike(b, 1, b.in(0))))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -1), b.rank(0));
  if (failed(axis))
    return failure();
  b.ignore({"epsilon", "stash_type"}); // the inverse deviation has them in it
  ArrayRef<int64_t> x = b.shape(1), extents = x.drop_front(*axis);
  int64_t outer = ShapedType::getNumElements(x.take_front(*axis));
  for (unsigned i = 3; i < (rms ? 4u : 5u); ++i)
    if (tensorType(b.in(i)).getNumElements() != outer)
      return b.fail() << "expected " << outer << " values as operand " << i << ", got " << b.in(i).getType();
  auto common = b.broadcastShape(b.shape(2), extents);
  if (failed(common))
    return failure();
  if (ArrayRef<int64_t>(*common) != extents)
    return b.fail() << "expected a scale that broadcasts to [" << extents << "], got " << b.in(2).getType();
  Value scale = b.broadcastTo(b.in(2), extents);
  SmallVector<Value> results;
  if (rms) {
    auto op = RMSNormBackwardOp::create(b.builder, b.loc, b.in(0), b.in(1), scale, dropAxes(b, b.in(3), *axis, x),
                                        b.i64(*axis));
    results.append(op->result_begin(), op->result_end());
  } else {
    auto op = LayerNormBackwardOp::create(b.builder, b.loc, b.in(0), b.in(1), scale, dropAxes(b, b.in(3), *axis, x),
                                          dropAxes(b, b.in(4), *axis, x), b.i64(*axis));
    results.append(op->result_begin(), op->result_end());
  }
  for (auto [i, result] : llvm::enumerate(results)) {
    Value value = i == 0 ? result : b.cast(b.sumTo(result, b.shape(2)), b.element(2));
    if (b.wants(i) && failed(b.set(i, value)))
      return failure();
  }
  return success();
}

/// X times, or by, a number of any type.
static LogicalResult importScale(Binder &b) {
  if (failed(b.needFloat(1, 0)) || failed(b.need(2)))
    return failure();
  if (tensorType(b.in(1)).getNumElements() != 1)
    return b.fail() << "expected one number as scale, got " << b.in(1).getType();
  Value scale = b.broadcast(b.cast(b.reshape(b.in(1), {}), b.element(0)), b.shape(0), {});
  return b.done(b.intAttr("scale_down", 0) ? b.div(b.in(0), scale) : b.mul(b.in(0), scale));
}

/// The forward op whose mask this is.
static DropoutOp dropoutOf(Value mask) {
  auto compare = mask.getDefiningOp<CompareOp>();
  return compare ? compare.getLhs().getDefiningOp<DropoutOp>() : DropoutOp();
}

static LogicalResult importDropoutGrad(Binder &b) {
  if (failed(b.needFloat(1, 0)) || failed(b.need(2)))
    return failure();
  double ratio = 0.5;
  if (b.has(3))
    (void)b.in(3); // a mask of ones says the same
  if (b.has(2)) {
    FailureOr<double> given = b.number(2, "ratio");
    if (failed(given))
      return failure();
    ratio = *given;
  }
  if (!(ratio >= 0 && ratio < 1) || b.shape(1) != b.shape(0))
    return b.fail() << "expected a ratio in [0, 1) and a mask of dY's shape, got " << ratio << " and "
                    << b.in(1).getType();
  if (ratio == 0)
    return b.done(b.in(0));
  auto node = b.node.getInputs()[1].getDefiningOp<onnx::NodeOp>();
  if (node && node.getOpType() == "Dropout" && !dropoutOf(b.in(1))) {
    b.warn() << "the file scales the gradient of a Dropout that keeps everything, as ONNX Runtime 1.19.2 writes it: "
                "replaced by the gradient unscaled";
    return b.done(b.in(0));
  }
  // The same draws again, so that one op is dropout in both passes, and neither has it without.
  if (DropoutOp forward = dropoutOf(b.in(1)); forward && forward.getRatio().convertToDouble() == ratio)
    return b.done(b.make<DropoutOp>(b.in(0), forward.getKey(), forward.getRatioAttr(), forward.getStreamAttr()));
  return b.done(b.select(b.in(1), b.mul(b.in(0), 1 / (1 - ratio)), b.splatLike(b.in(0), 0.0)));
}

/// The result's type from a constant shape.
static FailureOr<RankedTensorType> shapedLike(Binder &b, unsigned i, Value like) {
  FailureOr<SmallVector<int64_t>> shape = b.ints(i, "shape");
  if (failed(shape) || failed(b.checkShape(*shape)))
    return failure();
  return RankedTensorType::get(*shape, tensorType(like).getElementType());
}

static LogicalResult importGatherGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 0, b.in(2));
  if (failed(type))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), type->getRank());
  if (failed(axis))
    return failure();
  SmallVector<int64_t> gathered(type->getShape().take_front(*axis));
  llvm::append_range(gathered, b.shape(1));
  llvm::append_range(gathered, type->getShape().drop_front(*axis + 1));
  if (failed(expectShape(b, 2, gathered)))
    return failure();
  return b.done(b.make<ScatterAddOp>(*type, b.in(1), b.in(2), b.i64(*axis)));
}

static LogicalResult importGatherElementsGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 1, b.in(0));
  if (failed(type))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), type->getRank());
  if (failed(axis) || failed(b.checkElementIndices(type->getShape(), b.shape(2), *axis)) ||
      failed(expectShape(b, 0, b.shape(2))))
    return failure();
  return b.done(b.make<ScatterElementsOp>(b.splat(*type, 0.0), b.in(2), b.in(0), *axis, ScatterKind::add));
}

static LogicalResult importGatherNDGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 0, b.in(2));
  if (failed(type))
    return failure();
  ArrayRef<int64_t> x = type->getShape(), indices = b.shape(1);
  int64_t batch = b.intAttr("batch_dims", 0), rank = type->getRank();
  if (batch < 0 || batch >= std::min(rank, b.rank(1)) || indices.back() < 1 || indices.back() > rank - batch ||
      indices.take_front(batch) != x.take_front(batch))
    return b.fail() << "expected index tuples that fit [" << x << "], got " << b.in(1).getType() << " with batch_dims "
                    << batch;
  SmallVector<int64_t> gathered(indices.drop_back());
  llvm::append_range(gathered, x.drop_front(batch + indices.back()));
  if (failed(expectShape(b, 2, gathered)))
    return failure();
  return b.done(b.make<ScatterNDOp>(b.splat(*type, 0.0), b.in(1), b.in(2), batch, ScatterKind::add));
}

/// Result 1 has each input's extent.
static LogicalResult importConcatTraining(Binder &b) {
  FailureOr<int64_t> axis = joinOperands(b);
  if (failed(axis))
    return failure();
  SmallVector<int64_t> lengths;
  for (unsigned i = 0; i < b.operandCount(); ++i)
    lengths.push_back(b.shape(i)[*axis]);
  return b.wants(1) ? b.set(1, b.indices(lengths)) : success();
}

static LogicalResult importSplitTraining(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  FailureOr<SmallVector<int64_t>> lengths = b.ints(1, "lengths");
  if (failed(axis) || failed(lengths))
    return failure();
  int64_t at = 0;
  for (int64_t length : *lengths)
    if (length < 0 || length > b.shape(0)[*axis] - at || lengths->size() != b.resultCount())
      return b.fail() << "expected " << b.resultCount() << " lengths within " << b.shape(0)[*axis] << ", got ["
                      << *lengths << "]";
    else
      at += length;
  SmallVector<int64_t> starts(b.rank(0), 0), sizes(b.shape(0));
  for (auto [i, length] : llvm::enumerate(*lengths)) {
    sizes[*axis] = length;
    if (failed(b.set(i, b.slice(b.in(0), starts, sizes))))
      return failure();
    starts[*axis] += length;
  }
  return success();
}

static LogicalResult importMaxPoolGrad(Binder &b) {
  if (failed(b.needFloat(1, 3)) || failed(b.need(2)))
    return failure();
  // The shape of X is no operand: the forward op, which counted the positions, has it, and its windows.
  (void)b.in(1);
  b.ignore({"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"});
  auto node = b.node.getInputs()[1].getDefiningOp<onnx::NodeOp>();
  Value y = node && node.getOpType() == "MaxPool" ? b.converter.lookup(node.getResult(0)) : Value();
  auto forward = y ? y.getDefiningOp<MaxPoolOp>() : MaxPoolOp();
  if (!forward || y.getType() != b.in(0).getType())
    return b.fail() << "expected the positions of a MaxPool whose result is of dY's type, got " << b.in(1).getType();
  return b.done(b.make<MaxPoolBackwardOp>(forward.getX().getType(), b.in(0), forward.getIndices(), forward.getKernel(),
                                          forward.getStrides(), forward.getDilations(), forward.getPadsLow(),
                                          forward.getPadsHigh()));
}

/// The shape of X is no operand: proto::takeArtifacts() has left the one that the file declares in `input_shape`.
static LogicalResult importAveragePoolGrad(Binder &b) {
  SmallVector<int64_t> shape = b.intsAttr("input_shape");
  if (shape.size() != b.shape(0).size() || failed(b.checkShape(shape)))
    return b.fail() << "expected the type of its result in the file's value_info, got none: the shape of X is said "
                       "nowhere else";
  FailureOr<Window> w = windowOf(b, ArrayRef<int64_t>(shape).drop_front(2), b.intsAttr("kernel_shape"));
  if (failed(w))
    return failure();
  auto type = RankedTensorType::get(shape, b.element(0));
  return b.done(b.make<AvgPoolBackwardOp>(type, b.in(0), w->kernel, w->strides, w->dilations, w->low, w->high,
                                          b.intAttr("count_include_pad", 0) != 0));
}

static LogicalResult importSliceGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 1, b.in(0));
  FailureOr<SmallVector<int64_t>> starts = b.ints(2, "starts"), ends = b.ints(3, "ends");
  if (failed(type) || failed(starts) || failed(ends))
    return failure();
  SmallVector<int64_t> axes = axisRange(0, starts->size()), steps(starts->size(), 1);
  for (auto [i, list] : {std::pair(4u, &axes), std::pair(5u, &steps)})
    if (b.has(i)) {
      FailureOr<SmallVector<int64_t>> given = b.ints(i, i == 4 ? "axes" : "steps");
      if (failed(given))
        return failure();
      *list = *given;
    }
  int64_t rank = type->getRank();
  if (axes.size() != starts->size() || steps.size() != starts->size() || b.rank(0) != rank)
    return b.fail() << "expected as many starts, axes and steps, and dY of the shape's rank";
  SmallVector<int64_t> low(rank, 0), high(rank, 0), interior(rank, 0), reversed;
  for (int64_t i = 0; i < rank; ++i)
    high[i] = type->getDimSize(i) - b.shape(0)[i];
  for (auto [start, given, step] : llvm::zip_equal(*starts, axes, steps)) {
    FailureOr<int64_t> axis = b.axis(given, rank);
    if (failed(axis))
      return failure();
    int64_t extent = type->getDimSize(*axis), count = b.shape(0)[*axis];
    if (step == 0 || std::abs(step) > std::max<int64_t>(extent, 1))
      return b.fail() << "expected a step within the extent, got " << step;
    int64_t first =
        std::clamp<int64_t>(start < 0 ? start + extent : start, 0, std::max<int64_t>(extent - (step < 0), 0));
    int64_t reach = (count - 1) * std::abs(step);
    if (step < 0) {
      reversed.push_back(*axis);
      first -= reach;
    }
    if (count > 0 && (first < 0 || first + reach >= extent))
      return b.fail() << "expected a slice within extent " << extent << ", got " << count << " from " << first;
    low[*axis] = first;
    interior[*axis] = std::abs(step) - 1;
    high[*axis] = extent - first - reach - 1;
  }
  Value dy = b.in(0);
  if (!reversed.empty())
    dy = b.make<ReverseOp>(dy, b.list(reversed));
  return b.done(b.make<PadOp>(dy, b.list(low), b.list(high), b.list(interior), b.f64(0)));
}

static LogicalResult importDivGrad(Binder &b) {
  auto common = b.broadcastShape(b.shape(1), b.shape(2));
  if (failed(common))
    return failure();
  if (ArrayRef<int64_t>(*common) != b.shape(0))
    return b.fail() << "expected dY of the shape of A / B, got " << b.in(0).getType();
  Value divisor = b.broadcastTo(b.in(2), *common), da = b.div(b.in(0), divisor);
  if (b.wants(0) && failed(b.set(0, b.sumTo(da, b.shape(1)))))
    return failure();
  Value quotient = b.div(b.broadcastTo(b.in(1), *common), divisor);
  return b.wants(1) ? b.set(1, b.sumTo(b.neg(b.mul(da, quotient)), b.shape(2))) : success();
}

/// The positions and weights of the forward op that has the same input.
static LogicalResult importResizeGrad(Binder &b) {
  for (unsigned i = 2; i < b.operandCount(); ++i)
    if (b.has(i))
      (void)b.in(i); // as the forward op has them
  b.ignore({"antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
            "extrapolation_value", "keep_aspect_ratio_policy", "mode", "nearest_mode"});
  ResizeOp forward;
  for (Operation *user : b.in(1).getUsers())
    if (auto op = dyn_cast<ResizeOp>(user); op && op.getY().getType() == b.in(0).getType())
      forward = op;
  if (!forward)
    return b.fail() << "expected a Resize of the same input in the forward pass, got none";
  return b.done(b.make<ResizeBackwardOp>(b.in(1).getType(), b.in(0), forward.getAxesAttr(), forward.getTapsAttr(),
                                         forward.getPositionsAttr(), forward.getWeightsAttr()));
}

static LogicalResult importReduceSumTraining(Binder &b) {
  FailureOr<SmallVector<int64_t>> given = b.ints(1, "axes");
  if (failed(given))
    return failure();
  FailureOr<SmallVector<int64_t>> axes = b.axes(*given, b.rank(0));
  if (failed(axes))
    return failure();
  // Read in either case: attributes that no rule asks for are refused.
  if (bool isNoop = b.intAttr("noop_with_empty_axes", 0) != 0; isNoop && axes->empty())
    return b.done(b.in(0));
  if (axes->empty())
    *axes = axisRange(0, b.rank(0));
  SmallVector<int64_t> shape(b.shape(0));
  for (int64_t axis : *axes)
    shape[axis] = 1;
  Value sum = b.sum(b.in(0), *axes);
  return b.done(b.intAttr("keepdims", 1) ? b.reshape(sum, shape) : sum);
}

/// The axes over which a gradient is summed to come back to each of two shapes that broadcast.
static LogicalResult importBroadcastGradientArgs(Binder &b) {
  FailureOr<SmallVector<int64_t>> shapes[2] = {b.ints(0, "shape"), b.ints(1, "shape")};
  if (failed(shapes[0]) || failed(shapes[1]))
    return failure();
  auto common = b.broadcastShape(*shapes[0], *shapes[1]);
  if (failed(common))
    return failure();
  for (unsigned i : {0u, 1u}) {
    SmallVector<int64_t> axes;
    int64_t missing = common->size() - shapes[i]->size();
    for (int64_t axis = common->size(); axis-- > 0;)
      if (axis < missing || ((*shapes[i])[axis - missing] == 1 && (*common)[axis] != 1))
        axes.push_back(axis);
    if (b.wants(i) && failed(b.set(i, b.indices(axes))))
      return failure();
  }
  return success();
}

static void addElementwiseGradients(RuleTable &t, StringRef ms) {
  t.onDomain(ms, "ReluGrad", importSlope<ReluBackwardOp>, NumericClass::Movement);
  t.onDomain(ms, "TanhGrad", importSlope<TanhBackwardOp>, NumericClass::Neutral);
  t.onDomain(ms, "SigmoidGrad", importSlope<SigmoidBackwardOp>, NumericClass::Neutral);
  t.onDomain(ms, "LeakyReluGrad", importLeakyReluGrad, NumericClass::Neutral);
  t.onDomain(ms, "GeluGrad", importGeluGrad<GeluForm::erf>, NumericClass::Neutral);
  t.onDomain(ms, "FastGeluGrad", importGeluGrad<GeluForm::tanh>, NumericClass::Neutral);
  t.onDomain(ms, "BiasGeluGrad_dX", importGeluGrad<GeluForm::erf>, NumericClass::Neutral);
  t.onDomain(ms, "BiasFastGeluGrad_dX", importGeluGrad<GeluForm::tanh>, NumericClass::Neutral);
  t.onDomain(ms, "QuickGeluGrad", importQuickGeluGrad, NumericClass::Neutral);
  t.onDomain(ms, "SinGrad", importWaveGrad<CosOp, false>, NumericClass::Neutral);
  t.onDomain(ms, "CosGrad", importWaveGrad<SinOp, true>, NumericClass::Neutral);
  t.onDomain(ms, "DropoutGrad", importDropoutGrad, NumericClass::Neutral);
  t.onDomain(ms, "DivGrad", takesFloats(3, 0, importDivGrad), NumericClass::Neutral);
  t.onDomain(ms, "Scale", importScale, NumericClass::Neutral);
}

void mpt::registerRuntimeGradients(RuleTable &t) {
  constexpr StringLiteral ms = "com.microsoft";
  addElementwiseGradients(t, ms);
  t.onDomain(ms, "SoftmaxGrad", importSoftmaxGrad<SoftmaxBackwardOp, true>, NumericClass::RangeExpanding);
  t.onDomain(ms, "SoftmaxGrad_13", importSoftmaxGrad<SoftmaxBackwardOp, false>, NumericClass::RangeExpanding);
  t.onDomain(ms, "LogSoftmaxGrad", importSoftmaxGrad<LogSoftmaxBackwardOp, true>, NumericClass::RangeExpanding);
  t.onDomain(ms, "LogSoftmaxGrad_13", importSoftmaxGrad<LogSoftmaxBackwardOp, false>, NumericClass::RangeExpanding);
  t.onDomain(ms, "SoftmaxCrossEntropyLossGrad", importSoftmaxCrossEntropyGrad, NumericClass::Pinned);
  t.onDomain(ms, "ConvGrad", takesFloats(3, 3, importConvGrad), NumericClass::Contraction);
  t.onDomain(ms, "ConvTransposeGrad", importConvTransposeGrad, NumericClass::Contraction);
  t.onDomain(ms, "BatchNormalizationGrad", importBatchNormalizationGrad, NumericClass::Reduction);
  t.onDomain(ms, "LayerNormalizationGrad", importNormGrad<false>, NumericClass::Reduction);
  t.onDomain(ms, "SimplifiedLayerNormalizationGrad", importNormGrad<true>, NumericClass::Reduction);
  t.onDomain(ms, "GatherGrad", takes(3, importGatherGrad), NumericClass::Reduction);
  t.onDomain(ms, "GatherElementsGrad", takes(3, importGatherElementsGrad), NumericClass::Reduction);
  t.onDomain(ms, "GatherNDGrad", takes(3, importGatherNDGrad), NumericClass::Reduction);
  t.onDomain(ms, "ConcatTraining", importConcatTraining, NumericClass::Movement);
  t.onDomain(ms, "SplitTraining", takes(2, importSplitTraining), NumericClass::Movement);
  t.onDomain(ms, "SliceGrad", takes(4, importSliceGrad), NumericClass::Movement);
  t.onDomain(ms, "MaxPoolGrad", importMaxPoolGrad, NumericClass::Movement);
  t.onDomain(ms, "AveragePoolGrad", takesFloats(1, 3, importAveragePoolGrad), NumericClass::Neutral);
  t.onDomain(ms, "ResizeGrad", takesFloats(2, 1, importResizeGrad), NumericClass::Neutral);
  for (StringRef name : {"MaxPoolGrad", "AveragePoolGrad", "SinGrad", "CosGrad"})
    t.standardToo(name);
  t.onDomain(ms, "ReduceSumTraining", takes(2, importReduceSumTraining), NumericClass::Reduction);
  t.onDomain(ms, "BroadcastGradientArgs", importBroadcastGradientArgs, NumericClass::Pinned);
}
