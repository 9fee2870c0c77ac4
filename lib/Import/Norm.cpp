// SPDX-License-Identifier: Apache-2.0
// Normalizations and softmax, with the sums that ONNX Runtime (com.microsoft) fuses into them.
#include "Converter.h"
#include "Roots.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

/// Fails unless operand `i` has the shape `want`.
static LogicalResult expectShape(Binder &b, unsigned i, ArrayRef<int64_t> want, StringRef what) {
  if (b.shape(i) != want)
    return b.fail() << "expected " << what << " of shape [" << want << "], got [" << b.shape(i) << "]";
  return success();
}

/// Warnings about training have no place in the evaluation that a file brings.
static bool isEvaluation(Binder &b) {
  auto function = b.builder.getBlock()->getParent()->getParentOfType<func::FuncOp>();
  return function && function.getSymName() == "evaluate";
}

static Value alongChannels(Binder &b, Value perChannel, Value like) {
  return b.broadcast(perChannel, tensorType(like).getShape(), {1});
}

static LogicalResult inferenceBatchNorm(Binder &b, double epsilon) {
  for (unsigned i : {1u, 2u})
    if (auto state = dyn_cast_or_null<train::StateOp>(b.converter.stateOf(b.in(i))); state && !isEvaluation(b))
      if (state.getRole() == train::Role::parameter && !state.getFrozen()) {
        if (b.converter.inferenceNorms++ == 0)
          b.warn()
              << "expected training_mode = 1 in a model to be trained, got the inference form: its statistics stay as "
                 "they are, here and in further ones; give --batch-norm=train, export in training mode "
                 "(TrainingMode.TRAINING), or freeze '"
              << state.getTensorName() << "'";
        break;
      }
  Value x = b.widen(b.in(0));
  Value inv = b.make<RsqrtOp>(b.add(b.widen(b.in(4)), epsilon));
  Value scale = b.mul(b.widen(b.in(1)), inv);
  Value centred = b.sub(x, alongChannels(b, b.widen(b.in(3)), x));
  Value y = b.add(b.mul(centred, alongChannels(b, scale, x)), alongChannels(b, b.widen(b.in(2)), x));
  return b.done(b.cast(y, b.element(0)));
}

static LogicalResult importBatchNormalization(Binder &b) {
  for (unsigned i = 1; i < 5; ++i)
    if (failed(expectShape(b, i, {b.shape(0)[1]}, "scale, bias, mean and variance")))
      return failure();
  double epsilon = b.floatAttr("epsilon", 1e-5), momentum = b.floatAttr("momentum", 0.9);
  if (b.version() < 9 && b.intAttr("spatial", 1) == 0)
    return b.fail() << "expected spatial = 1, got 0; statistics of single activations are not supported";
  // Until opset 13 the training form is the one whose further results are used or named.
  bool training = b.version() >= 14 ? b.intAttr("training_mode", 0) != 0 : b.resultCount() > 1;
  if (!training)
    return inferenceBatchNorm(b, epsilon);
  // Core takes channels on axis 1 of rank 3 and more; [N, C] gets a spatial extent of 1.
  SmallVector<int64_t> shape(b.shape(0));
  Value x = b.in(0);
  if (shape.size() == 2)
    x = b.reshape(x, {shape[0], shape[1], 1});
  auto op = BatchNormOp::create(b.builder, b.loc, x, b.widen(b.in(1)), b.widen(b.in(2)), b.f64(epsilon));
  setAttr<MPTDialect::MomentumAttrHelper>(op, b.f64(momentum));
  Value updated[2];
  SmallVector<Attribute> names;
  for (unsigned i : {0u, 1u}) {
    Value old = b.in(3 + i), fresh = b.cast(i == 0 ? op.getMean() : op.getVariance(), b.element(3 + i));
    updated[i] = b.add(b.mul(old, momentum), b.mul(fresh, 1 - momentum));
    if (failed(b.set(1 + i, updated[i])))
      return failure();
    if (auto state = dyn_cast_or_null<train::StateOp>(b.converter.stateOf(old)))
      names.push_back(FlatSymbolRefAttr::get(state.getSymNameAttr()));
  }
  if (names.size() == 2) {
    setAttr<MPTDialect::StatisticsAttrHelper>(op, b.builder.getArrayAttr(names));
    for (unsigned i : {0u, 1u})
      train::WriteOp::create(b.builder, b.loc, cast<FlatSymbolRefAttr>(names[i]), updated[i], Value());
  }
  // ONNX Runtime's training form has operands of its gradient as further results: the inverse deviation, not the
  // variance.
  bool saves = b.node.getOpType() == "BatchNormInternal";
  if (saves)
    b.ignore({"training_mode"});
  if (saves && b.wants(3) && failed(b.set(3, op.getMean())))
    return failure();
  if (saves && b.wants(4) && failed(b.set(4, b.make<RsqrtOp>(b.add(op.getVariance(), epsilon)))))
    return failure();
  return b.done(b.reshape(op.getY(), shape));
}

/// Statistics of core (without the normalized axes) in ONNX's form (those axes as 1).
static Value keepDims(Binder &b, Value statistic, int64_t axis) {
  SmallVector<int64_t> shape(b.shape(0));
  std::fill(shape.begin() + axis, shape.end(), 1);
  return b.reshape(statistic, shape);
}

/// Scale or bias, FP32 or wider, broadcast to the normalized extents.
static FailureOr<Value> normOperand(Binder &b, unsigned i, ArrayRef<int64_t> extents) {
  auto shape = b.broadcastShape(b.shape(i), extents);
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != extents)
    return b.fail() << "expected a scale and bias that broadcast to [" << extents << "], got [" << b.shape(i) << "]";
  return b.broadcastTo(b.widen(b.in(i)), extents);
}

static LogicalResult importLayerNormalization(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -1), b.rank(0));
  if (failed(axis))
    return failure();
  b.ignore({"stash_type"}); // statistics are never narrower than FP32
  ArrayRef<int64_t> extents = b.shape(0).drop_front(*axis);
  FailureOr<Value> scale = normOperand(b, 1, extents);
  FailureOr<Value> bias = failed(scale) ? scale
                          : b.has(2)    ? normOperand(b, 2, extents)
                                        : FailureOr<Value>(b.splatLike(*scale, 0));
  if (failed(bias))
    return failure();
  auto op =
      LayerNormOp::create(b.builder, b.loc, b.in(0), *scale, *bias, b.i64(*axis), b.f64(b.floatAttr("epsilon", 1e-5)));
  if (b.wants(1) && failed(b.set(1, keepDims(b, op.getMean(), *axis))))
    return failure();
  if (b.wants(2) && failed(b.set(2, keepDims(b, op.getInvStd(), *axis))))
    return failure();
  return b.done(op.getY());
}

static LogicalResult importRMSNormalization(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -1), b.rank(0));
  if (failed(axis))
    return failure();
  b.ignore({"stash_type"}); // statistics are never narrower than FP32
  FailureOr<Value> scale = normOperand(b, 1, b.shape(0).drop_front(*axis));
  if (failed(scale))
    return failure();
  auto op = RMSNormOp::create(b.builder, b.loc, b.in(0), *scale, b.i64(*axis), b.f64(b.floatAttr("epsilon", 1e-5)));
  if (b.wants(1) && failed(b.set(1, keepDims(b, op.getInvRms(), *axis))))
    return failure();
  return b.done(op.getY());
}

static LogicalResult groupNorm(Binder &b, Value scale, Value bias, int64_t groups) {
  FloatAttr epsilon = b.f64(b.floatAttr("epsilon", 1e-5));
  if (groups == 0) // nor channels
    return b.done(b.in(0));
  auto op = GroupNormOp::create(b.builder, b.loc, b.in(0), b.widen(scale), b.widen(bias), b.i64(groups), epsilon);
  return b.done(op.getY());
}

static LogicalResult importGroupNormalization(Binder &b) {
  int64_t groups = b.intAttr("num_groups", 0), channels = b.shape(0)[1];
  if (groups < 1 || channels % groups != 0)
    return b.fail() << "expected num_groups that divides " << channels << " channels, got " << groups;
  b.ignore({"stash_type"}); // statistics are never narrower than FP32
  // Opset 18 has one scale and bias a group, opset 21 one a channel.
  int64_t count = b.version() < 21 ? groups : channels;
  Value affine[2];
  for (unsigned i : {1u, 2u}) {
    if (failed(expectShape(b, i, {count}, "scale and bias")))
      return failure();
    Value value = b.in(i);
    if (count != channels)
      value = b.reshape(b.broadcast(value, {groups, channels / groups}, {0}), {channels});
    affine[i - 1] = value;
  }
  return groupNorm(b, affine[0], affine[1], groups);
}

static LogicalResult importInstanceNormalization(Binder &b) {
  int64_t channels = b.shape(0)[1];
  for (unsigned i : {1u, 2u})
    if (failed(expectShape(b, i, {channels}, "scale and bias")))
      return failure();
  return groupNorm(b, b.in(1), b.in(2), channels);
}

template <typename Op> static LogicalResult importSoftmax(Binder &b) {
  bool flatten = b.version() < 13;
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", flatten ? 1 : -1), b.rank(0));
  if (failed(axis))
    return failure();
  Value x = b.in(0);
  if (!flatten || *axis == b.rank(0) - 1)
    return b.done(b.make<Op>(x.getType(), x, b.i64(*axis)));
  // Before opset 13 all axes from `axis` on are one.
  int64_t outer = 1, inner = 1;
  for (auto [i, extent] : llvm::enumerate(b.shape(0)))
    (static_cast<int64_t>(i) < *axis ? outer : inner) *= extent;
  Value flat = b.reshape(x, {outer, inner});
  return b.done(b.reshape(b.make<Op>(flat.getType(), flat, b.i64(1)), b.shape(0)));
}

/// Windows are written out, one shifted tensor a channel.
constexpr int64_t mostShifts = 1024;

static LogicalResult importLRN(Binder &b) {
  int64_t size = b.intAttr("size", 0), channels = b.shape(0)[1];
  if (size < 1 || std::min(size, channels) > mostShifts)
    return b.fail() << "expected a size from 1 to " << mostShifts << ", got " << size;
  double alpha = b.floatAttr("alpha", 1e-4), beta = b.floatAttr("beta", 0.75), bias = b.floatAttr("bias", 1);
  // y = x / (bias + alpha / size * sum of x^2 over a window of channels)^beta, the window (size - 1) / 2 before.
  Value x = b.widen(b.in(0)), square = b.mul(x, x), sum;
  int64_t most = std::max<int64_t>(channels - 1, 0), before = std::min((size - 1) / 2, most),
          after = std::min(size / 2, most);
  SmallVector<int64_t> low(b.rank(0), 0), high(b.rank(0), 0), zero(b.rank(0), 0);
  low[1] = before;
  high[1] = after;
  Value padded = b.make<PadOp>(square, b.list(low), b.list(high), b.list(zero), b.f64(0));
  for (int64_t i = 0; i <= before + after; ++i) {
    SmallVector<int64_t> starts(b.rank(0), 0);
    starts[1] = i;
    Value shifted = b.slice(padded, starts, b.shape(0));
    sum = sum ? b.add(sum, shifted) : shifted;
  }
  Value base = b.add(b.mul(sum, alpha / size), bias);
  Value scale = b.make<PowOp>(base, b.splatLike(base, -beta));
  return b.done(b.cast(b.mul(x, scale), b.element(0)));
}

static LogicalResult importMeanVarianceNormalization(Binder &b) {
  FailureOr<SmallVector<int64_t>> axes = b.axes(b.intsAttr("axes", {0, 2, 3}), b.rank(0));
  if (failed(axes))
    return failure();
  Value x = b.widen(b.in(0));
  auto spread = [&](Value reduced) { return b.broadcastAlong(reduced, b.shape(0), *axes); };
  Value centred = b.sub(x, spread(b.mean(x, *axes)));
  Value deviation = rootOfPowers(b, b.mean(b.mul(centred, centred), *axes));
  return b.done(b.cast(b.div(centred, spread(b.add(deviation, 1e-9))), b.element(0)));
}

static LogicalResult importLpNormalization(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -1), b.rank(0));
  if (failed(axis))
    return failure();
  int64_t p = b.intAttr("p", 2);
  if (p != 1 && p != 2)
    return b.fail() << "expected p = 1 or 2, got " << p;
  Value x = b.widen(b.in(0));
  Value sum = b.sum(p == 1 ? b.make<AbsOp>(x) : b.mul(x, x), {*axis});
  // A vector of zeros stays one; before the root, whose slope at 0 is infinite.
  Value safe = b.select(b.compare(Predicate::eq, sum, 0.0), b.splatLike(sum, 1), sum);
  if (p == 2)
    safe = b.make<SqrtOp>(safe);
  return b.done(b.cast(b.div(x, b.broadcastAlong(safe, b.shape(0), {*axis})), b.element(0)));
}

static LogicalResult importBiasSoftmax(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 1), b.rank(0));
  if (failed(axis))
    return failure();
  if (*axis != b.rank(0) - 1)
    return b.fail() << "expected the last axis, got " << *axis;
  b.ignore({"is_inner_broadcast"}); // the bias has extents of 1 where it is repeated
  FailureOr<Value> x = b.plusOptional(b.in(0), 1);
  return failed(x) ? failure() : b.done(b.make<SoftmaxOp>(x->getType(), *x, b.i64(*axis)));
}

/// Scale or bias of a norm over the last axis; zeros where it is absent.
static FailureOr<Value> normVector(Binder &b, unsigned i, Value like) {
  int64_t extent = tensorType(like).getShape().back();
  if (!b.has(i))
    return b.splat(RankedTensorType::get({extent}, wideType(tensorType(like).getElementType())), 0);
  if (b.shape(i) != ArrayRef<int64_t>{extent})
    return b.fail() << "expected " << extent << " values as operand " << i << ", got " << b.in(i).getType();
  return b.widen(b.in(i));
}

/// Residual sum and norm: operands x, skip, gamma, beta (of LayerNorm), bias; the sum is result 3.
template <bool rms> static LogicalResult importSkipNorm(Binder &b) {
  if (b.rank(0) < 1 || !b.isFloat(0))
    return b.fail() << "expected float tensors, got " << b.in(0).getType();
  FailureOr<Value> sum = b.plusOptional(b.in(0), 1);
  if (succeeded(sum))
    sum = b.plusOptional(*sum, rms ? 3 : 4);
  if (failed(sum))
    return failure();
  if (b.wants(1) || b.wants(2))
    return b.fail() << "expected the mean and deviation to be unused";
  FailureOr<Value> scale = normVector(b, 2, *sum);
  if (failed(scale) || (b.wants(3) && failed(b.set(3, *sum))))
    return failure();
  IntegerAttr axis = b.i64(b.rank(0) - 1);
  FloatAttr epsilon = b.f64(b.floatAttr("epsilon", 1e-12));
  if (rms)
    return b.done(RMSNormOp::create(b.builder, b.loc, *sum, *scale, axis, epsilon).getY());
  FailureOr<Value> bias = normVector(b, 3, *sum);
  if (failed(bias))
    return failure();
  return b.done(LayerNormOp::create(b.builder, b.loc, *sum, *scale, *bias, axis, epsilon).getY());
}

/// Group normalization of [N, ..., C] (channels_last, the default) or [N, C, ...], with SiLU after it if asked for.
static LogicalResult importChannelsLastGroupNorm(Binder &b) {
  int64_t rank = b.rank(0), groups = b.intAttr("groups", 0);
  bool last = b.intAttr("channels_last", 1);
  SmallVector<int64_t> toFirst = {0, rank - 1}, toLast = {0};
  toFirst.append(axisRange(1, rank - 1));
  toLast.append(axisRange(2, rank));
  toLast.push_back(1);
  Value x = last ? b.transpose(b.in(0), toFirst) : b.in(0);
  int64_t channels = tensorType(x).getDimSize(1);
  if (groups < 1 || channels % groups || b.shape(1) != ArrayRef<int64_t>{channels} || b.shape(2) != b.shape(1))
    return b.fail() << "expected groups that divide " << channels << " channels, and a scale and bias for each, got "
                    << groups << " groups and " << b.in(1).getType();
  auto vector = [&](unsigned i) { return b.cast(b.in(i), wideType(b.element(0))); };
  Value y =
      GroupNormOp::create(b.builder, b.loc, x, vector(1), vector(2), b.i64(groups), b.f64(b.floatAttr("epsilon", 1e-5)))
          .getY();
  if (b.intAttr("activation", 0))
    y = b.make<SwishOp>(y.getType(), y, b.f64(1));
  return b.done(last ? b.transpose(y, toLast) : y);
}

/// Word, position and segment embeddings, summed and normalized, as BERT has them.
static LogicalResult importEmbedLayerNormalization(Binder &b) {
  if (failed(b.need(1)) || !b.has(2) || !b.has(3) || !b.has(5))
    return b.fail() << "expected ids, word and position embeddings and gamma";
  if (b.wants(1))
    return b.fail() << "expected the mask's index to be unused";
  b.ignore({"mask_index_type"});
  if (b.has(7))
    b.named(7); // only the index comes from the mask
  if (b.rank(0) != 2 || b.rank(2) != 2 || b.rank(3) != 2)
    return b.fail() << "expected ids [B, T] and embeddings of rank 2, got " << b.in(0).getType();
  Value sum = b.make<GatherOp>(b.in(2), b.in(0), 0);
  int64_t batch = b.shape(0)[0], time = b.shape(0)[1];
  if (b.has(8)) {
    sum = b.add(sum, b.broadcastTo(b.make<GatherOp>(b.in(3), b.in(8), 0), tensorType(sum).getShape()));
  } else {
    if (b.shape(3)[0] < time)
      return b.fail() << "expected at least " << time << " positions, got " << b.in(3).getType();
    Value rows = b.slice(b.in(3), {0, 0}, {time, b.shape(3)[1]});
    sum = b.add(sum, b.broadcast(rows, {batch, time, b.shape(3)[1]}, {1, 2}));
  }
  if (b.has(1) && b.has(4))
    sum = b.add(sum, b.make<GatherOp>(b.in(4), b.in(1), 0));
  FailureOr<Value> scale = normVector(b, 5, sum), bias = normVector(b, 6, sum);
  if (failed(scale) || failed(bias) || (b.wants(2) && failed(b.set(2, sum))))
    return failure();
  FloatAttr epsilon = b.f64(b.floatAttr("epsilon", 1e-12));
  return b.done(LayerNormOp::create(b.builder, b.loc, sum, *scale, *bias, b.i64(2), epsilon).getY());
}

/// Statistics of a batch are reductions; in inference they are constants of an affine map.
static NumericClass classOfBatchNormalization(onnx::NodeOp node) {
  auto training = dyn_cast_or_null<IntegerAttr>(node.getAttrs().get("training_mode"));
  return training && training.getInt() != 0 ? NumericClass::Reduction : NumericClass::Neutral;
}

void mpt::addNormRules(RuleTable &t) {
  t.on("BatchNormalization", 7, takesFloats(5, 2, importBatchNormalization),
       NodeClass{classOfBatchNormalization, Arithmetic::Bounds}.trains({1, 2}));
  t.onDomain("com.microsoft", "BatchNormInternal", takesFloats(5, 2, importBatchNormalization),
             NodeClass(NumericClass::Reduction).trains({1, 2}));
  t.on("LayerNormalization", 17, takesFloats(2, 1, importLayerNormalization),
       NodeClass{NumericClass::Reduction, Arithmetic::Bounds}.trains({1, 2}));
  t.on("RMSNormalization", 23, takesFloats(2, 1, importRMSNormalization),
       NodeClass{NumericClass::Reduction, Arithmetic::Bounds}.trains({1, 2}));
  t.onDomain("com.microsoft", "LayerNormalization", takesFloats(2, 1, importLayerNormalization),
             NodeClass{NumericClass::Reduction, Arithmetic::Bounds}.trains({1, 2}));
  t.onDomain("com.microsoft", "SimplifiedLayerNormalization", takesFloats(2, 1, importRMSNormalization),
             NodeClass{NumericClass::Reduction, Arithmetic::Bounds}.trains({1, 2}));
  t.on("GroupNormalization", 18, takesFloats(3, 3, importGroupNormalization),
       NodeClass{NumericClass::Reduction, Arithmetic::Bounds}.trains({1, 2}));
  t.on("InstanceNormalization", 6, takesFloats(3, 3, importInstanceNormalization),
       NodeClass{NumericClass::Reduction, Arithmetic::Bounds}.trains({1, 2}));
  t.on("Softmax", 1, takesFloats(1, 1, importSoftmax<SoftmaxOp>), {NumericClass::RangeExpanding, Arithmetic::Bounds});
  t.on("LogSoftmax", 1, takesFloats(1, 1, importSoftmax<LogSoftmaxOp>),
       {NumericClass::RangeExpanding, Arithmetic::Bounds});
  t.on("LRN", 1, takesFloats(1, 3, importLRN), NumericClass::Reduction);
  t.on("MeanVarianceNormalization", 9, takesFloats(1, 1, importMeanVarianceNormalization),
       {NumericClass::Reduction, Arithmetic::Bounds});
  t.on("LpNormalization", 1, takesFloats(1, 1, importLpNormalization), {NumericClass::Reduction, Arithmetic::Bounds});
  t.onDomain("com.microsoft", "BiasSoftmax", takes(2, importBiasSoftmax), NumericClass::RangeExpanding);
  t.onDomain("com.microsoft", "SkipLayerNormalization", takes(3, importSkipNorm<false>),
             NodeClass(NumericClass::Reduction).trains({2, 3, 4}));
  t.onDomain("com.microsoft", "SkipSimplifiedLayerNormalization", takes(3, importSkipNorm<true>),
             NodeClass(NumericClass::Reduction).trains({2, 3, 4}));
  t.standardToo("LayerNormalization", 17);
  for (StringRef name : {"SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
    t.standardToo(name);
  t.onDomain("com.microsoft", "GroupNorm", takesFloats(3, 3, importChannelsLastGroupNorm),
             NodeClass(NumericClass::Reduction).trains({1, 2}));
  t.onDomain("com.microsoft", "EmbedLayerNormalization", importEmbedLayerNormalization,
             NodeClass(NumericClass::Reduction).trains({2, 3, 4, 5, 6}));
}
