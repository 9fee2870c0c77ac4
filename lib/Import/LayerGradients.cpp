// SPDX-License-Identifier: Apache-2.0
// Gradient operators of ONNX Runtime Training (com.microsoft) of layers: softmax, losses, convolutions, norms, pools.
#include "RuntimeGradients.h"

#include "ClassRows.h"
#include "Converter.h"
#include "Windows.h"

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

void mpt::registerLayerGradients(RuleTable &t) {
  constexpr StringLiteral ms = "com.microsoft";
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
  t.onDomain(ms, "MaxPoolGrad", importMaxPoolGrad, NumericClass::Movement);
  t.onDomain(ms, "AveragePoolGrad", takesFloats(1, 3, importAveragePoolGrad), NumericClass::Neutral);
  t.onDomain(ms, "ResizeGrad", takesFloats(2, 1, importResizeGrad), NumericClass::Neutral);
}
