// SPDX-License-Identifier: Apache-2.0
// Convolution over N, C and spatial dimensions.
#include "Activations.h"
#include "Sampling.h"
#include "Windows.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mpt;

/// y plus a bias of one value a channel.
static Value addBias(Binder &b, Value y, Value bias) {
  return b.add(y, b.broadcast(bias, tensorType(y).getShape(), {1}));
}

static LogicalResult checkBias(Binder &b, unsigned i, int64_t channels) {
  if (b.has(i) && (failed(b.need(i + 1)) || b.shape(i) != ArrayRef<int64_t>{channels}))
    return b.fail() << "expected a bias of " << channels << " values, got " << b.in(i).getType();
  return success();
}

static LogicalResult checkOperands(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  if (b.rank(0) < 3 || b.rank(0) > 5 || b.rank(1) != b.rank(0) || b.element(0) != b.element(1) || !b.isFloat(0))
    return b.fail() << "expected float x and w of one rank from 3 to 5, got " << b.in(0).getType() << " and "
                    << b.in(1).getType();
  return success();
}

/// The convolution of x and w, which are operands 0 and `filter` or stand for them.
static FailureOr<Value> convolve(Binder &b, Value input, Value weights) {
  int64_t groups = b.intAttr("group", 1);
  ArrayRef<int64_t> x = tensorType(input).getShape(), w = tensorType(weights).getShape();
  if (groups < 1 || x[1] != groups * w[1] || w[0] % groups != 0)
    return b.fail() << "expected " << x[1] << " channels in " << groups << " groups, got a filter for " << w[1]
                    << " channels a group and " << w[0] << " outputs";
  SmallVector<int64_t> kernel = b.intsAttr("kernel_shape", w.drop_front(2));
  if (ArrayRef<int64_t>(kernel) != w.drop_front(2))
    return b.fail() << "expected kernel_shape [" << w.drop_front(2) << "] as in the filter, got [" << kernel << "]";
  FailureOr<Window> window = windowOf(b, x.drop_front(2), kernel);
  if (failed(window))
    return failure();
  // Negative pads crop, which convolutions do not.
  SmallVector<int64_t> none(x.size(), 0), low(none), high(none);
  for (size_t i = 0; i < kernel.size(); ++i) {
    low[i + 2] = std::min<int64_t>(window->low[i], 0);
    high[i + 2] = std::min<int64_t>(window->high[i], 0);
    window->low[i] -= low[i + 2];
    window->high[i] -= high[i + 2];
  }
  if (low != none || high != none)
    input = b.make<PadOp>(input, b.list(low), b.list(high), b.list(none), b.f64(0));
  return b.make<ConvOp>(input, weights, window->strides, window->dilations, window->low, window->high, groups,
                        NumericsAttr());
}

/// The same plus the bias that the third operand is.
static FailureOr<Value> convolveWithBias(Binder &b, Value x, Value w) {
  FailureOr<Value> y = convolve(b, x, w);
  if (failed(y) || failed(checkBias(b, 2, tensorType(w).getDimSize(0))))
    return failure();
  return b.has(2) ? addBias(b, *y, b.in(2)) : *y;
}

static LogicalResult importConv(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  FailureOr<Value> y = convolveWithBias(b, b.in(0), b.in(1));
  return failed(y) ? failure() : b.done(*y);
}

/// ONNX Runtime's convolution with channels last, in the filters too.
static LogicalResult importNhwcConv(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  SmallVector<int64_t> first = {0, b.rank(0) - 1}, last = {0}; // orders with channels first, and last
  for (int64_t i = 1; i + 1 < b.rank(0); ++i) {
    first.push_back(i);
    last.push_back(i + 1);
  }
  last.push_back(1);
  FailureOr<Value> y = convolveWithBias(b, b.transpose(b.in(0), first), b.transpose(b.in(1), first));
  return failed(y) ? failure() : b.done(b.transpose(*y, last));
}

/// ONNX Runtime's convolution with a summand, the fourth operand, and an activation behind both.
static LogicalResult importFusedConv(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  FailureOr<Value> y = convolveWithBias(b, b.in(0), b.in(1));
  if (failed(y))
    return failure();
  if (b.has(3)) {
    if (b.in(3).getType() != y->getType())
      return b.fail() << "expected a summand of the result's type " << y->getType() << ", got " << b.in(3).getType();
    y = b.add(*y, b.in(3));
  }
  SmallVector<std::optional<double>> parameters;
  if (auto given = dyn_cast_or_null<DenseF32ArrayAttr>(b.attr("activation_params")))
    parameters.assign(given.asArrayRef().begin(), given.asArrayRef().end());
  FailureOr<Value> activated = fusedActivation(b, *y, parameters);
  return failed(activated) ? failure() : b.done(*activated);
}

/// Depthwise convolution along time that sees the present and the past: x [N, C, T], filters [C, 1, K], bias, and the K
/// - 1 samples before x, or zeros; the last K - 1 are the next call's past.
static LogicalResult importCausalConvWithState(Binder &b) {
  StringRef activation = b.stringAttr("activation", "none");
  ArrayRef<int64_t> x = b.shape(0), w = b.shape(1);
  if (x.size() != 3 || !b.isFloat(0) || b.element(1) != b.element(0) || w.size() != 3 || w[0] != x[1] || w[1] != 1 ||
      w[2] < 1 || (activation != "none" && activation != "silu" && activation != "swish"))
    return b.fail() << "expected float x [N, C, T], filters [C, 1, K] and activation none, silu or swish, got "
                    << b.in(0).getType() << ", " << b.in(1).getType() << " and '" << activation << "'";
  SmallVector<int64_t> past = {x[0], x[1], w[2] - 1};
  auto pastType = RankedTensorType::get(past, b.element(0));
  if (b.has(3) && b.in(3).getType() != pastType)
    return b.fail() << "expected a past state of type " << pastType << ", got " << b.in(3).getType();
  Value padded = b.in(0);
  if (past[2] != 0)
    padded = b.concat({b.has(3) ? b.in(3) : b.splat(pastType, 0), padded}, 2);
  SmallVector<int64_t> one = {1}, none = {0};
  Value y = b.make<ConvOp>(padded, b.in(1), one, one, none, none, x[1], NumericsAttr());
  if (failed(checkBias(b, 2, x[1])))
    return failure();
  if (b.has(2))
    y = addBias(b, y, b.in(2));
  if (activation != "none")
    y = b.make<SwishOp>(y.getType(), y, b.f64(1));
  if (b.wants(1) && failed(b.set(1, b.slice(padded, {0, 0, x[2]}, past))))
    return failure();
  return b.done(y);
}

/// Operand `i` without its zero point, operand `zero`: one, or (of filters) one for each output channel.
static FailureOr<Value> withoutZero(Binder &b, unsigned i, unsigned zero) {
  Type wide = b.builder.getF32Type();
  if (!isa<IntegerType>(b.element(i)) || b.element(i).getIntOrFloatBitWidth() > 8 || b.rank(i) < 3 || b.rank(i) > 5)
    return b.fail() << "expected 8-bit integers of rank 3 to 5, got " << b.in(i).getType();
  Value x = b.cast(b.in(i), wide);
  if (!b.has(zero))
    return x;
  Value point = b.cast(b.in(zero), wide);
  int64_t count = tensorType(point).getNumElements();
  if (count != 1 && count != b.shape(i)[0])
    return b.fail() << "expected a zero point of one value, or of " << b.shape(i)[0] << ", got "
                    << b.in(zero).getType();
  return b.sub(x, count == 1 ? b.broadcastTo(b.reshape(point, {}), b.shape(i))
                             : b.broadcast(b.reshape(point, {count}), b.shape(i), {0}));
}

/// FP32 sums of products of 8-bit numbers are exact up to this many of them.
constexpr int64_t mostExactProducts = (1 << 24) / (255 * 255);

/// The sums of products of a convolution of 8-bit integers, as whole FP32 numbers.
static FailureOr<Value> convolveIntegers(Binder &b, unsigned filter, unsigned inputZero, unsigned filterZero) {
  FailureOr<Value> x = withoutZero(b, 0, inputZero), w = withoutZero(b, filter, filterZero);
  if (failed(x) || failed(w))
    return failure();
  int64_t products = ShapedType::getNumElements(b.shape(filter).drop_front());
  if (products > mostExactProducts)
    return b.fail() << "expected sums of at most " << mostExactProducts << " products, which are exact, got "
                    << products;
  return convolve(b, *x, *w);
}

static LogicalResult importConvInteger(Binder &b) {
  FailureOr<Value> y = convolveIntegers(b, 1, 2, 3);
  return failed(y) ? failure() : b.done(b.cast(*y, b.builder.getI32Type()));
}

/// x, its scale and zero point, the filter's, the result's, and a bias in steps of both scales.
static LogicalResult importQLinearConv(Binder &b) {
  FailureOr<Value> y = convolveIntegers(b, 3, 2, 5);
  if (failed(y))
    return failure();
  RankedTensorType type = tensorType(*y);
  int64_t channels = type.getDimSize(1);
  auto one = [&](unsigned i) {
    return b.broadcastTo(b.reshape(b.cast(b.in(i), type.getElementType()), {}), type.getShape());
  };
  for (unsigned i : {1u, 6u, 7u})
    if (tensorType(b.in(i)).getNumElements() != 1)
      return b.fail() << "expected one scale and zero point of x and y, got " << b.in(i).getType();
  int64_t scales = tensorType(b.in(4)).getNumElements();
  if (scales != 1 && scales != channels)
    return b.fail() << "expected a scale of the filter of one value, or of " << channels << ", got "
                    << b.in(4).getType();
  Value filterScale = scales == 1 ? one(4) : b.broadcast(b.reshape(b.in(4), {channels}), type.getShape(), {1});
  if (b.has(8)) {
    if (failed(checkBias(b, 8, channels)))
      return failure();
    y = addBias(b, *y, b.cast(b.in(8), type.getElementType()));
  }
  auto integer = dyn_cast<IntegerType>(b.element(7));
  if (!integer || integer.getWidth() != 8)
    return b.fail() << "expected a zero point of 8-bit integers, got " << b.in(7).getType();
  Value factor = b.div(b.mul(one(1), filterScale), one(6));
  Value whole = b.add(b.make<RoundOp>(b.mul(*y, factor)), one(7));
  double low = integer.isUnsigned() ? 0 : -128;
  return b.done(b.cast(b.make<ClampOp>(whole, b.f64(low), b.f64(low + 255)), integer));
}

static LogicalResult importConvTranspose(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  int64_t groups = b.intAttr("group", 1);
  ArrayRef<int64_t> x = b.shape(0), w = b.shape(1);
  size_t rank = x.size() - 2;
  if (groups < 1 || x[1] != w[0] || x[1] % groups != 0)
    return b.fail() << "expected a filter for " << x[1] << " channels in " << groups << " groups, got [" << w << "]";
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0), none(rank, 0);
  SmallVector<int64_t> strides = b.intsAttr("strides", ones), dilations = b.intsAttr("dilations", ones);
  SmallVector<int64_t> pads = b.intsAttr("pads", zeros), extra = b.intsAttr("output_padding", none);
  SmallVector<int64_t> wanted = b.intsAttr("output_shape"), kernel = b.intsAttr("kernel_shape", w.drop_front(2));
  if (ArrayRef<int64_t>(kernel) != w.drop_front(2))
    return b.fail() << "expected kernel_shape [" << w.drop_front(2) << "] as in the filter, got [" << kernel << "]";
  if (failed(b.checkWindow("strides", strides, rank)) || failed(b.checkWindow("dilations", dilations, rank)) ||
      failed(b.checkPads(pads, rank, /*cropping=*/true)))
    return failure();
  if (extra.size() != rank || llvm::any_of(extra, [](int64_t v) { return v < 0 || v > Binder::mostWindow; }))
    return b.fail() << "expected " << rank << " entries of output_padding, got [" << extra << "]";
  if (!wanted.empty() &&
      (wanted.size() < rank || llvm::any_of(wanted, [](int64_t v) { return v < 1 || v > int64_t(1) << 31; })))
    return b.fail() << "expected " << rank << " positive entries of output_shape, got [" << wanted << "]";
  StringRef mode = b.stringAttr("auto_pad", "NOTSET");
  SmallVector<int64_t> shape = {x[0], w[1] * groups}, low, high, before(x.size(), 0), zero(x.size(), 0);
  for (size_t i = 0; i < rank; ++i) {
    FailureOr<int64_t> spread = b.spread(x[i + 2], strides[i]), span = b.spread(w[i + 2], dilations[i]);
    if (failed(spread) || failed(span))
      return failure();
    int64_t full = *spread + *span + 1 + extra[i], begin = pads[i], end = pads[rank + i];
    bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (same || !wanted.empty()) {
      int64_t out = wanted.empty() ? x[i + 2] * strides[i] : wanted[wanted.size() - rank + i];
      int64_t total = full - out;
      int64_t half = llvm::divideFloorSigned(total, 2); // negative where the result is longer than the windows reach
      begin = mode == "SAME_UPPER" ? half : total - half;
      end = total - begin;
    }
    int64_t out = full - begin - end;
    if (out < 1 || out > (int64_t(1) << 31))
      return b.fail() << "expected a positive output extent, got " << out << " on spatial axis " << i;
    // A result that begins before the first window has zeros there.
    before[i + 2] = std::max<int64_t>(-begin, 0);
    // The convolution whose data gradient this is reads `extra` fewer samples at the end.
    shape.push_back(out - before[i + 2]);
    low.push_back(begin + before[i + 2]);
    high.push_back(end - extra[i]);
  }
  if (failed(checkBias(b, 2, shape[1])))
    return failure();
  auto type = RankedTensorType::get(shape, b.element(0));
  Value y = b.make<ConvBackwardDataOp>(type, b.in(0), b.in(1), b.list(strides), b.list(dilations), b.list(low),
                                       b.list(high), b.i64(groups), NumericsAttr());
  if (before != zero)
    y = b.make<PadOp>(y, b.list(before), b.list(zero), b.list(zero), b.f64(0));
  return b.done(b.has(2) ? addBias(b, y, b.in(2)) : y);
}

namespace {
/// Convolution that reads its samples at places of its own, between pixels (arXiv:1703.06870), and weighs them
/// (arXiv:1811.11168): a matrix multiplication of the filters with the samples.
class DeformableConv {
public:
  explicit DeformableConv(Binder &b) : b(b) {}

  LogicalResult run();

private:
  LogicalResult readOperands();
  Value positions(size_t axis);
  Value sampled();

  Binder &b;
  int64_t groups = 1, parts = 1; ///< of channels; of channels that share their places
  int64_t taps = 1, points = 1;  ///< of the filter; of the result
  Window window;
  SmallVector<int64_t> result;
};
} // namespace

LogicalResult DeformableConv::readOperands() {
  if (failed(checkOperands(b)) || failed(b.need(3)))
    return failure();
  ArrayRef<int64_t> x = b.shape(0), w = b.shape(1), offset = b.shape(2);
  groups = b.intAttr("group", 1);
  parts = b.intAttr("offset_group", 1);
  if (groups < 1 || parts < 1 || x[1] != groups * w[1] || w[0] % groups != 0 || x[1] % parts != 0)
    return b.fail() << "expected " << x[1] << " channels in " << groups << " groups and " << parts
                    << " groups of offsets, got a filter of " << b.in(1).getType();
  SmallVector<int64_t> kernel = b.intsAttr("kernel_shape", w.drop_front(2));
  if (ArrayRef<int64_t>(kernel) != w.drop_front(2))
    return b.fail() << "expected kernel_shape [" << w.drop_front(2) << "] as in the filter, got [" << kernel << "]";
  FailureOr<Window> read = windowOf(b, x.drop_front(2), kernel);
  if (failed(read))
    return failure();
  window = *read;
  result = {x[0], w[0]};
  auto rank = static_cast<int64_t>(kernel.size());
  for (int64_t i = 0; i < rank; ++i) {
    int64_t span = (kernel[i] - 1) * window.dilations[i] + 1;
    result.push_back((x[i + 2] + window.low[i] + window.high[i] - span) / window.strides[i] + 1);
    taps *= kernel[i];
    points *= result.back();
  }
  SmallVector<int64_t> want(result), mask(result);
  want[1] = parts * taps * rank;
  mask[1] = parts * taps;
  if (offset != ArrayRef<int64_t>(want) || b.element(2) != b.element(0) || tensorType(b.in(0)).getNumElements() == 0)
    return b.fail() << "expected offsets [" << want << "] of the input's type, got " << b.in(2).getType();
  if (b.has(4) && (b.shape(4) != ArrayRef<int64_t>(mask) || b.element(4) != b.element(0)))
    return b.fail() << "expected a mask [" << mask << "] of the input's type, got " << b.in(4).getType();
  return checkBias(b, 3, w[0]);
}

/// Where along a spatial axis each tap of each point reads, [N * parts, taps * points].
Value DeformableConv::positions(size_t axis) {
  int64_t batch = b.shape(0)[0] * parts;
  auto rank = static_cast<int64_t>(window.kernel.size());
  SmallVector<int64_t> grid(window.kernel);
  grid.append(result.begin() + 2, result.end());
  auto type = RankedTensorType::get(grid, b.builder.getI64Type());
  auto along = [&](int64_t dimension, int64_t step) {
    return b.mul(IotaOp::create(b.builder, b.loc, type, b.i64(dimension)), static_cast<double>(step));
  };
  Value origin = b.add(along(axis, window.dilations[axis]), along(rank + axis, window.strides[axis]));
  origin = b.add(origin, -static_cast<double>(window.low[axis]));
  Value offset = b.slice(b.reshape(b.in(2), {batch, taps, rank, points}), {0, 0, static_cast<int64_t>(axis), 0},
                         {batch, taps, 1, points});
  offset = b.widen(b.reshape(offset, {batch, taps * points}));
  origin = b.cast(b.reshape(origin, {taps * points}), tensorType(offset).getElementType());
  return b.add(offset, b.broadcast(origin, {batch, taps * points}, {1}));
}

/// The samples that each tap of each point reads, [groups, channels of a group * taps, N * points].
Value DeformableConv::sampled() {
  ArrayRef<int64_t> x = b.shape(0);
  int64_t channels = x[1] / parts, batch = x[0] * parts;
  SmallVector<int64_t> split = {batch, channels};
  split.append(x.begin() + 2, x.end());
  SmallVector<AxisTaps> axes;
  for (size_t i = 0; i < window.kernel.size(); ++i)
    axes.push_back(linearTaps(b, positions(i), x[i + 2]));
  Value read = readSamples(b, rowsOf(b, b.reshape(b.in(0), split)), x.drop_front(2), axes);
  if (b.has(4))
    read = b.mul(read, b.broadcast(b.reshape(b.in(4), {batch, taps * points}), tensorType(read).getShape(), {0, 1}));
  read = b.transpose(b.reshape(read, {x[0], parts, taps, points, channels}), {1, 4, 2, 0, 3});
  return b.reshape(read, {groups, x[1] / groups * taps, x[0] * points});
}

LogicalResult DeformableConv::run() {
  if (failed(readOperands()))
    return failure();
  int64_t batch = b.shape(0)[0], outputs = b.shape(1)[0] / groups;
  if (failed(b.checkShape(result)) || failed(b.checkShape({batch, b.shape(0)[1], taps, points})))
    return failure();
  Value filters = b.reshape(b.in(1), {groups, outputs, b.shape(1)[1] * taps});
  Value y = b.reshape(b.matmul(filters, sampled()), {groups * outputs, batch, points});
  y = b.reshape(b.transpose(y, {1, 0, 2}), result);
  return b.done(b.has(3) ? addBias(b, y, b.in(3)) : y);
}

static LogicalResult importDeformConv(Binder &b) { return DeformableConv(b).run(); }

void mpt::addConvRules(RuleTable &t) {
  t.on("Conv", 1, importConv, NodeClass(NumericClass::Contraction).trains({1, 2}));
  t.onDomain("com.microsoft", "FusedConv", importFusedConv, NodeClass(NumericClass::Contraction).trains({1, 2}));
  t.onDomain("com.microsoft", "NhwcConv", importNhwcConv, NodeClass(NumericClass::Contraction).trains({1, 2}));
  t.noDomain("com.microsoft.nchwc", "its tensors are blocked as one processor wants them; let ONNX Runtime save the "
                                    "optimized model at level ORT_ENABLE_EXTENDED, or take the model before that");
  t.on("CausalConvWithState", 27, takes(2, importCausalConvWithState),
       NodeClass(NumericClass::Contraction).trains({1, 2}));
  t.on("ConvInteger", 10, takes(2, importConvInteger), NumericClass::Pinned);
  t.on("QLinearConv", 10, takes(8, importQLinearConv), NumericClass::Pinned);
  t.on("ConvTranspose", 1, importConvTranspose, NodeClass(NumericClass::Contraction).trains({1, 2}));
  t.on("DeformConv", 19, importDeformConv, NodeClass(NumericClass::Contraction).trains({1, 3}));
}
