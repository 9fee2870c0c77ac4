// SPDX-License-Identifier: Apache-2.0
// Attention: scaled dot-product attention of ONNX, and the fused forms of ONNX Runtime (com.microsoft), written out.
#include "AttentionMask.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mpt;

/// [B, T, heads D] as [B, heads, T, D].
static FailureOr<Value> splitHeads(Binder &b, unsigned i, int64_t heads) {
  if (b.rank(i) == 4)
    return b.in(i);
  ArrayRef<int64_t> shape = b.shape(i);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0)
    return b.fail() << "expected [B, heads, T, D], or [B, T, heads * D] with the number of heads, got [" << shape
                    << "] and " << heads << " heads";
  return b.transpose(b.reshape(b.in(i), {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

/// Keys or values (operand `i`) behind the past ones (operand `past`), which become result `present`.
static FailureOr<Value> withPast(Binder &b, unsigned i, unsigned past, unsigned present) {
  FailureOr<Value> x = splitHeads(b, i, b.intAttr("kv_num_heads", 0));
  if (failed(x))
    return failure();
  if (b.has(past)) {
    SmallVector<int64_t> want(tensorType(*x).getShape());
    if (!b.in(past) || b.rank(past) != 4 || b.element(past) != b.element(i))
      return b.fail() << "expected past keys and values [B, heads, T, D] of the type of the new ones";
    want[2] = b.shape(past)[2];
    if (b.shape(past) != ArrayRef<int64_t>(want))
      return b.fail() << "expected past keys and values of shape [" << want << "], got [" << b.shape(past) << "]";
    if (want[2] != 0)
      x = b.concat({b.in(past), *x}, 2);
  }
  if (b.wants(present) && failed(b.set(present, *x)))
    return failure();
  return x;
}

/// Softmax over the keys; rows without a key are zeros, and so are their gradients.
static FailureOr<Value> attentionWeights(Binder &b, Value scores, Value emptyRows) {
  FailureOr<Type> precision = b.typeAttr("softmax_precision", tensorType(scores).getElementType());
  if (failed(precision) || !isa<FloatType>(*precision))
    return b.fail() << "expected a float type as softmax_precision";
  Type element = tensorType(scores).getElementType();
  if (emptyRows)
    scores = b.select(emptyRows, b.splatLike(scores, 0), scores);
  scores = b.cast(scores, *precision);
  Value weights = b.cast(b.make<SoftmaxOp>(scores.getType(), scores, b.i64(3)), element);
  return emptyRows ? b.select(emptyRows, b.splatLike(weights, 0), weights) : weights;
}

/// Scaled dot-product attention (arXiv 1706.03762) with grouped queries (arXiv 2305.13245), written out.
static LogicalResult importAttention(Binder &b) {
  if (b.has(4) != b.has(5) || (b.has(4) && b.has(6)))
    return b.fail() << "expected past keys with past values, and neither with counts of keys that are no padding";
  FailureOr<Value> q = splitHeads(b, 0, b.intAttr("q_num_heads", 0));
  FailureOr<Value> k = withPast(b, 1, 4, 1), v = withPast(b, 2, 5, 2);
  if (failed(q) || failed(k) || failed(v))
    return failure();
  SmallVector<int64_t> qs(tensorType(*q).getShape()), ks(tensorType(*k).getShape()), vs(tensorType(*v).getShape());
  if (ks[1] < 1 || ks[1] != vs[1] || ks[2] != vs[2] || qs[3] != ks[3] || qs[1] % ks[1] != 0 || qs[0] != ks[0])
    return b.fail() << "expected queries, keys and values that fit, got [" << qs << "], [" << ks << "] and [" << vs
                    << "]";
  if (failed(b.checkShape({qs[0], qs[1], qs[2], ks[2]})))
    return failure();
  // Grouped queries: each key head serves several query heads.
  auto repeat = [&](Value x, ArrayRef<int64_t> s) {
    int64_t group = qs[1] / s[1];
    if (group == 1)
      return x;
    return b.reshape(b.broadcast(x, {s[0], s[1], group, s[2], s[3]}, {0, 1, 3, 4}), {s[0], qs[1], s[2], s[3]});
  };
  double scale = b.floatAttr("scale", 1 / std::sqrt(static_cast<double>(qs[3])));
  // Narrow scores might overflow before they are scaled: both operands take the root of the scale, as in the standard.
  bool isNarrow = tensorType(*q).getElementTypeBitWidth() < 32 && scale > 0;
  auto scaled = [&](Value x) { return isNarrow ? b.mul(x, std::sqrt(scale)) : x; };
  Value scores = b.matmul(scaled(*q), repeat(scaled(*k), ks), false, true);
  if (!isNarrow)
    scores = b.mul(scores, scale);
  Value shown[4] = {scores};
  // The cap comes before the mask: a capped -inf would let masked keys through.
  if (double cap = b.floatAttr("softcap", 0); cap != 0)
    scores = b.mul(b.make<TanhOp>(b.mul(scores, 1 / cap)), cap);
  shown[1] = scores;
  AttentionMask mask(b, tensorType(scores), b.has(4) ? b.shape(4)[2] : 0);
  if (failed(mask.read()))
    return failure();
  scores = shown[2] = mask.apply(scores);
  FailureOr<Value> weights = attentionWeights(b, scores, mask.findEmptyRows());
  if (failed(weights))
    return failure();
  shown[3] = *weights;
  int64_t mode = b.intAttr("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return b.fail() << "expected qk_matmul_output_mode from 0 to 3, got " << mode;
  if (b.wants(3) && failed(b.set(3, shown[mode])))
    return failure();
  Value y = b.matmul(*weights, repeat(*v, vs));
  if (b.rank(0) == 3)
    y = b.reshape(b.transpose(y, {0, 2, 1, 3}), {qs[0], qs[2], qs[1] * vs[3]});
  return b.done(y);
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

/// The bias of the scores: the mask (operand `maskAt`), operand 5 and the causal mask, each where given; else null.
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
    FailureOr<Value> given = b.optionalLike(5, b.splat(scores, 0));
    if (failed(given))
      return failure();
    plus(*given);
  }
  if (b.intAttr("unidirectional", 0))
    plus(causalBias(b, scores));
  return bias;
}

/// Self-attention with the projections of queries, keys and values in one matrix multiplication: x, weights, bias,
/// mask.
static LogicalResult importFusedAttention(Binder &b) {
  int64_t heads = b.intAttr("num_heads", 0);
  b.ignore({"mask_filter_value"}); // where there is no mask
  if (b.has(4) || b.has(6) || b.wants(1) || b.intAttr("do_rotary", 0) || b.attr("qkv_hidden_sizes"))
    return b.fail()
           << "expected attention without past keys, rotary embedding and qkv_hidden_sizes, which are not supported";
  if (b.rank(0) != 3 || b.rank(1) != 2 || b.element(1) != b.element(0) || b.shape(1)[0] != b.shape(0)[2] || heads < 1 ||
      b.shape(1)[1] % (3 * heads))
    return b.fail() << "expected [B, T, C] and weights [C, 3 H] of its type for " << heads << " heads, got "
                    << b.in(0).getType() << " and " << b.in(1).getType();
  int64_t batch = b.shape(0)[0], time = b.shape(0)[1], width = b.shape(1)[1] / 3;
  Value flat = b.matmul(b.reshape(b.in(0), {batch * time, b.shape(0)[2]}), b.in(1));
  FailureOr<Value> all = b.plusOptional(b.reshape(flat, {batch, time, 3 * width}), 2);
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
  int64_t heads = b.intAttr("num_heads", 0);
  b.ignore({"mask_filter_value"}); // where there is no mask
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
  if (b.intAttr("rotary_embedding_dim", 0) || b.floatAttr("scale", 1) != 1 || b.intAttr("is_packed_batching", 0))
    return b.fail() << "expected rotation of whole heads, without scale and packing";
  if (b.rank(2) != 2 || b.shape(2)[1] < 1 || b.in(2).getType() != b.in(3).getType() || b.element(2) != b.element(0) ||
      (b.rank(0) != 3 && b.rank(0) != 4))
    return b.fail() << "expected x of rank 3 or 4 and tables [positions, D / 2] of its type, got " << b.in(0).getType()
                    << ", " << b.in(2).getType() << " and " << b.in(3).getType();
  b.ignore({"num_heads"}); // the tables say how wide a head is
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

void mpt::addAttentionRules(RuleTable &t) {
  t.on("Attention", 23, takes(3, importAttention), NumericClass::Contraction);
  t.onDomain("com.microsoft", "Attention", takes(2, importFusedAttention),
             NodeClass(NumericClass::Contraction).trains({1, 2}));
  t.onDomain("com.microsoft", "MultiHeadAttention", takes(3, importMultiHeadAttention),
             NodeClass(NumericClass::Contraction).trains({3}));
  t.onDomain("com.microsoft", "RotaryEmbedding", takes(4, importRotaryEmbedding), NumericClass::Neutral);
}
