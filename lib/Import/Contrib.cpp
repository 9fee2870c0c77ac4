// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's own operators (com.microsoft), which its optimizer puts into a model: written out in core ops.
#include "Binder.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mpt;

/// Operand `i` repeated to the shape of `like`, or null where it is absent.
static FailureOr<Value> optionalLike(Binder &b, unsigned i, Value like) {
  if (!b.has(i))
    return Value();
  ArrayRef<int64_t> want = tensorType(like).getShape();
  auto shape = b.broadcastShape(b.shape(i), want);
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != want || b.element(i) != tensorType(like).getElementType())
    return b.fail() << "expected operand " << i << " to broadcast to " << like.getType() << ", got "
                    << b.in(i).getType();
  return b.broadcastTo(b.in(i), want);
}

/// `x` plus operand `i` where that is given.
static FailureOr<Value> plusOptional(Binder &b, Value x, unsigned i) {
  FailureOr<Value> y = optionalLike(b, i, x);
  if (failed(y))
    return failure();
  return *y ? b.add(x, *y) : x;
}

template <GeluForm form> static LogicalResult importBiasGelu(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  FailureOr<Value> x = plusOptional(b, b.in(0), 1);
  return failed(x) ? failure() : b.done(b.make<GeluOp>(*x, form));
}

static LogicalResult importBiasSplitGelu(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  FailureOr<Value> x = plusOptional(b, b.in(0), 1);
  if (failed(x))
    return failure();
  SmallVector<int64_t> starts(b.rank(0), 0), sizes(b.shape(0));
  if (sizes.empty() || sizes.back() % 2)
    return b.fail() << "expected an even last extent, got " << b.in(0).getType();
  sizes.back() /= 2;
  Value value = b.slice(*x, starts, sizes);
  starts.back() = sizes.back();
  return b.done(b.mul(value, b.make<GeluOp>(b.slice(*x, starts, sizes), GeluForm::erf)));
}

static LogicalResult importBiasAdd(Binder &b) {
  if (failed(b.need(3)))
    return failure();
  FailureOr<Value> x = plusOptional(b, b.in(0), 1);
  if (succeeded(x))
    x = plusOptional(b, *x, 2);
  return failed(x) ? failure() : b.done(*x);
}

static LogicalResult importBiasSoftmax(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 1), b.rank(0));
  if (failed(axis))
    return failure();
  if (*axis != b.rank(0) - 1)
    return b.fail() << "expected the last axis, got " << *axis;
  FailureOr<Value> x = plusOptional(b, b.in(0), 1);
  return failed(x) ? failure() : b.done(b.make<SoftmaxOp>(x->getType(), *x, b.i64(*axis)));
}

/// Scale or bias of a norm over the last axis; zeros where it is absent.
static FailureOr<Value> normVector(Binder &b, unsigned i, Value like) {
  int64_t extent = tensorType(like).getShape().back();
  if (!b.has(i))
    return b.splat(RankedTensorType::get({extent}, tensorType(like).getElementType()), 0);
  if (b.shape(i) != ArrayRef<int64_t>{extent})
    return b.fail() << "expected " << extent << " values as operand " << i << ", got " << b.in(i).getType();
  return b.in(i);
}

/// Residual sum and norm: operands x, skip, gamma, beta (of LayerNorm), bias; the sum is result 3.
template <bool rms> static LogicalResult importSkipNorm(Binder &b) {
  if (failed(b.need(3)))
    return failure();
  if (b.rank(0) < 1 || !b.isFloat(0))
    return b.fail() << "expected float tensors, got " << b.in(0).getType();
  FailureOr<Value> sum = plusOptional(b, b.in(0), 1);
  if (succeeded(sum))
    sum = plusOptional(b, *sum, rms ? 3 : 4);
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
static LogicalResult importGroupNorm(Binder &b) {
  if (failed(b.need(3)))
    return failure();
  int64_t rank = b.rank(0), groups = b.intAttr("groups", 0);
  bool last = b.intAttr("channels_last", 1);
  if (rank < 3)
    return b.fail() << "expected an input of rank 3 or more, got " << b.in(0).getType();
  SmallVector<int64_t> toFirst = {0, rank - 1}, toLast = {0};
  toFirst.append(axisRange(1, rank - 1));
  toLast.append(axisRange(2, rank));
  toLast.push_back(1);
  Value x = last ? b.transpose(b.in(0), toFirst) : b.in(0);
  int64_t channels = tensorType(x).getDimSize(1);
  if (groups < 1 || channels % groups || b.shape(1) != ArrayRef<int64_t>{channels} || b.shape(2) != b.shape(1))
    return b.fail() << "expected groups that divide " << channels << " channels, and a scale and bias for each, got "
                    << groups << " groups and " << b.in(1).getType();
  auto vector = [&](unsigned i) { return b.cast(b.in(i), b.element(0)); };
  Value y =
      GroupNormOp::create(b.builder, b.loc, x, vector(1), vector(2), b.i64(groups), b.f64(b.floatAttr("epsilon", 1e-5)))
          .getY();
  if (b.intAttr("activation", 0))
    y = b.make<SwishOp>(y.getType(), y, b.f64(1));
  return b.done(last ? b.transpose(y, toLast) : y);
}

/// softmax(scale q k^T + bias) v for [B, N, T, D] and a bias of the scores' shape, or none.
static Value attend(Binder &b, Value q, Value k, Value v, Value bias, double scale) {
  Value scores = b.mul(b.matmul(q, k, false, true), scale);
  if (bias)
    scores = b.add(scores, bias);
  return b.matmul(b.make<SoftmaxOp>(scores.getType(), scores, b.i64(3)), v);
}

/// [B, T, N D] as [B, N, T, D].
static Value split(Binder &b, Value x, int64_t heads) {
  ArrayRef<int64_t> s = tensorType(x).getShape();
  return b.transpose(b.reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

static Value join(Binder &b, Value x) {
  ArrayRef<int64_t> s = tensorType(x).getShape();
  return b.reshape(b.transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

/// `low` where the mask (1: kept), [B, S] or [B, T, S], is 0, and 0 elsewhere, in the scores' shape.
static FailureOr<Value> maskBias(Binder &b, unsigned i, RankedTensorType scores, double low) {
  ArrayRef<int64_t> s = scores.getShape();
  SmallVector<int64_t> flat = {s[0], s[3]}, full = {s[0], s[2], s[3]};
  bool isFlat = b.shape(i) == ArrayRef<int64_t>(flat);
  if (!isFlat && b.shape(i) != ArrayRef<int64_t>(full))
    return b.fail() << "expected a mask of shape [" << flat << "] or [" << full << "], got " << b.in(i).getType();
  Value kept = b.compare(Predicate::ne, b.in(i), 0.0);
  kept = isFlat ? b.broadcast(kept, s, {0, 3}) : b.broadcast(kept, s, {0, 2, 3});
  return b.select(kept, b.splat(scores, 0), b.splat(scores, low));
}

static Value causalBias(Binder &b, RankedTensorType scores) {
  auto type = scores.clone(b.builder.getI64Type());
  Value row = IotaOp::create(b.builder, b.loc, type, b.i64(2)),
        column = IotaOp::create(b.builder, b.loc, type, b.i64(3));
  double low = -std::numeric_limits<double>::infinity();
  return b.select(b.compare(Predicate::le, column, row), b.splat(scores, 0), b.splat(scores, low));
}

/// What is added to the scores: the mask (operand `maskAt`), operand 5 and the causal mask, each where given; else
/// null.
static FailureOr<Value> scoresBias(Binder &b, unsigned maskAt, RankedTensorType scores) {
  Value bias;
  auto plus = [&](Value more) { bias = bias ? b.add(bias, more) : more; };
  if (b.has(maskAt)) {
    FailureOr<Value> mask = maskBias(b, maskAt, scores, b.floatAttr("mask_filter_value", -10000));
    if (failed(mask))
      return failure();
    plus(*mask);
  }
  if (b.has(5)) {
    FailureOr<Value> given = optionalLike(b, 5, b.splat(scores, 0));
    if (failed(given))
      return failure();
    plus(*given);
  }
  if (b.intAttr("unidirectional", 0))
    plus(causalBias(b, scores));
  return bias;
}

/// Self-attention with the projections of queries, keys and values in one product: x, weights, bias, mask.
static LogicalResult importAttention(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  int64_t heads = b.intAttr("num_heads", 0);
  if (b.has(4) || b.has(6) || b.wants(1) || b.intAttr("do_rotary", 0) || b.attr("qkv_hidden_sizes"))
    return b.fail()
           << "expected attention without past keys, rotary embedding and qkv_hidden_sizes, which are not supported";
  if (b.rank(0) != 3 || b.rank(1) != 2 || b.shape(1)[0] != b.shape(0)[2] || heads < 1 || b.shape(1)[1] % (3 * heads))
    return b.fail() << "expected [B, T, C] and weights [C, 3 H] for " << heads << " heads, got " << b.in(0).getType()
                    << " and " << b.in(1).getType();
  int64_t batch = b.shape(0)[0], time = b.shape(0)[1], width = b.shape(1)[1] / 3;
  Value flat = b.matmul(b.reshape(b.in(0), {batch * time, b.shape(0)[2]}), b.in(1));
  FailureOr<Value> all = plusOptional(b, b.reshape(flat, {batch, time, 3 * width}), 2);
  if (failed(all))
    return failure();
  Value parts[3];
  for (int64_t i = 0; i < 3; ++i)
    parts[i] = split(b, b.slice(*all, {0, 0, i * width}, {batch, time, width}), heads);
  auto type = RankedTensorType::get({batch, heads, time, time}, b.element(0));
  FailureOr<Value> bias = scoresBias(b, 3, type);
  if (failed(bias))
    return failure();
  double scale = b.floatAttr("scale", 0);
  if (scale == 0)
    scale = 1 / std::sqrt(static_cast<double>(width) / static_cast<double>(heads));
  return b.done(join(b, attend(b, parts[0], parts[1], parts[2], *bias, scale)));
}

/// Attention of projected queries, keys and values [B, T, H]: query, key, value, bias, key mask, scores' bias.
static LogicalResult importMultiHeadAttention(Binder &b) {
  if (failed(b.need(3)))
    return failure();
  int64_t heads = b.intAttr("num_heads", 0);
  if (b.has(6) || b.has(7) || b.wants(1) || b.wants(2))
    return b.fail() << "expected attention without past keys, which serve inference";
  Value parts[3];
  int64_t offset = 0;
  for (unsigned i = 0; i < 3; ++i) {
    if (b.rank(i) != 3 || heads < 1 || b.shape(i)[2] % heads || b.shape(i)[0] != b.shape(0)[0])
      return b.fail() << "expected [B, T, H] for " << heads << " heads as operand " << i << ", got "
                      << b.in(i).getType() << "; packed forms are not supported";
    Value x = b.in(i);
    if (b.has(3)) {
      int64_t width = b.shape(i)[2];
      if (b.rank(3) != 1 || b.shape(3)[0] < offset + width)
        return b.fail() << "expected one bias for queries, keys and values, got " << b.in(3).getType();
      x = b.add(x, b.broadcastTo(b.slice(b.in(3), {offset}, {width}), b.shape(i)));
      offset += width;
    }
    parts[i] = split(b, x, heads);
  }
  ArrayRef<int64_t> q = tensorType(parts[0]).getShape(), k = tensorType(parts[1]).getShape();
  if (q[3] != k[3] || k[2] != tensorType(parts[2]).getDimSize(2))
    return b.fail() << "expected queries, keys and values that fit, got " << b.in(0).getType() << ", "
                    << b.in(1).getType() << " and " << b.in(2).getType();
  auto type = RankedTensorType::get({q[0], heads, q[2], k[2]}, b.element(0));
  FailureOr<Value> bias = scoresBias(b, 4, type);
  if (failed(bias))
    return failure();
  double scale = b.floatAttr("scale", 0);
  if (scale == 0)
    scale = 1 / std::sqrt(static_cast<double>(q[3]));
  return b.done(join(b, attend(b, parts[0], parts[1], parts[2], *bias, scale)));
}

/// Rotation of pairs by angles that depend on the position: x, positions, cosines, sines.
static LogicalResult importRotaryEmbedding(Binder &b) {
  if (failed(b.need(4)))
    return failure();
  if (b.intAttr("rotary_embedding_dim", 0) || b.floatAttr("scale", 1) != 1 || b.intAttr("is_packed_batching", 0))
    return b.fail() << "expected rotation of whole heads, without scale and packing";
  if (b.rank(2) != 2 || b.shape(2) != b.shape(3) || (b.rank(0) != 3 && b.rank(0) != 4))
    return b.fail() << "expected x of rank 3 or 4 and tables [positions, D / 2], got " << b.in(0).getType() << " and "
                    << b.in(2).getType();
  int64_t half = b.shape(2)[1], width = 2 * half;
  Value x = b.in(0);
  if (b.shape(0).back() % width || (b.rank(0) == 4 && b.shape(0).back() != width))
    return b.fail() << "expected heads of " << width << " values, got " << b.in(0).getType();
  if (b.rank(0) == 3)
    x = split(b, x, b.shape(0)[2] / width);
  SmallVector<int64_t> s(tensorType(x).getShape());
  Value position = b.in(1);
  Type i64 = b.builder.getI64Type();
  if (b.rank(1) != 2) {
    // One number: the first position.
    if (tensorType(position).getNumElements() != 1)
      return b.fail() << "expected positions [B, T] or one number, got " << position.getType();
    auto grid = RankedTensorType::get({s[0], s[2]}, i64);
    Value steps = IotaOp::create(b.builder, b.loc, grid, b.i64(1));
    position = b.add(steps, b.broadcastTo(b.reshape(position, {}), {s[0], s[2]}));
  }
  if (tensorType(position).getShape() != ArrayRef<int64_t>{s[0], s[2]})
    return b.fail() << "expected positions [" << s[0] << ", " << s[2] << "], got " << position.getType();
  SmallVector<int64_t> part = {s[0], s[1], s[2], half};
  auto table = [&](unsigned i) { return b.broadcast(b.make<GatherOp>(b.in(i), position, 0), part, {0, 2, 3}); };
  Value cosine = table(2), sine = table(3), first, second;
  bool interleaved = b.intAttr("interleaved", 0);
  if (interleaved) {
    Value pairs = b.reshape(x, {s[0], s[1], s[2], half, 2});
    auto pick = [&](int64_t i) {
      return b.reshape(b.slice(pairs, {0, 0, 0, 0, i}, {s[0], s[1], s[2], half, 1}), part);
    };
    first = pick(0);
    second = pick(1);
  } else {
    first = b.slice(x, {0, 0, 0, 0}, part);
    second = b.slice(x, {0, 0, 0, half}, part);
  }
  Value y1 = b.sub(b.mul(first, cosine), b.mul(second, sine)), y2 = b.add(b.mul(first, sine), b.mul(second, cosine));
  if (interleaved) {
    SmallVector<int64_t> column(part);
    column.push_back(1);
    x = b.reshape(b.concat({b.reshape(y1, column), b.reshape(y2, column)}, 4), s);
  } else {
    x = b.concat({y1, y2}, 3);
  }
  return b.done(b.rank(0) == 3 ? join(b, x) : x);
}

/// Word, position and segment embeddings, summed and normalized, as BERT has them.
static LogicalResult importEmbedLayerNormalization(Binder &b) {
  if (failed(b.need(1)) || !b.has(2) || !b.has(3) || !b.has(5))
    return b.fail() << "expected ids, word and position embeddings and gamma";
  if (b.wants(1))
    return b.fail() << "expected the mask's index to be unused";
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

void mpt::addContribRules(RuleTable &t) {
  auto on = [&](StringRef name, Rule rule) { t.onDomain("com.microsoft", name, rule); };
  on("FastGelu", importBiasGelu<GeluForm::tanh>);
  on("BiasGelu", importBiasGelu<GeluForm::erf>);
  on("BiasSplitGelu", importBiasSplitGelu);
  on("BiasAdd", importBiasAdd);
  on("BiasSoftmax", importBiasSoftmax);
  on("SkipLayerNormalization", importSkipNorm<false>);
  on("SkipSimplifiedLayerNormalization", importSkipNorm<true>);
  on("GroupNorm", importGroupNorm);
  on("Attention", importAttention);
  on("MultiHeadAttention", importMultiHeadAttention);
  on("RotaryEmbedding", importRotaryEmbedding);
  on("EmbedLayerNormalization", importEmbedLayerNormalization);
}
