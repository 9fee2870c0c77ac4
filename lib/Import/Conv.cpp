// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling over N, C and spatial dimensions.
#include "Binder.h"

using namespace mlir;
using namespace mpt;

namespace {
struct Window {
  SmallVector<int64_t> kernel, strides, dilations, low, high;
};
} // namespace

/// Strides, dilations and pads of the node, with auto_pad and ceil_mode resolved for the spatial extents `in`.
static FailureOr<Window> windowOf(Binder &b, ArrayRef<int64_t> in, ArrayRef<int64_t> kernel) {
  size_t rank = in.size();
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  Window w{SmallVector<int64_t>(kernel), b.intsAttr("strides", ones), b.intsAttr("dilations", ones), {}, {}};
  if (failed(b.checkWindow("kernel extents", w.kernel, rank)) || failed(b.checkWindow("strides", w.strides, rank)) ||
      failed(b.checkWindow("dilations", w.dilations, rank)))
    return failure();
  SmallVector<int64_t> pads = b.intsAttr("pads", zeros);
  StringRef mode = b.stringAttr("auto_pad", "NOTSET");
  if (failed(b.checkPads(pads, rank, /*cropping=*/true)))
    return failure();
  for (size_t i = 0; i < rank; ++i) {
    int64_t span = (w.kernel[i] - 1) * w.dilations[i] + 1, low = pads[i], high = pads[rank + i];
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      int64_t out = (in[i] + w.strides[i] - 1) / w.strides[i];
      int64_t total = std::max<int64_t>((out - 1) * w.strides[i] + span - in[i], 0);
      low = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      high = total - low;
    } else if (mode == "VALID") {
      low = high = 0;
    } else if (mode != "NOTSET") {
      return b.fail() << "expected auto_pad NOTSET, VALID, SAME_UPPER or SAME_LOWER, got '" << mode << "'";
    }
    int64_t room = in[i] + low + high - span;
    bool roundUp = b.intAttr("ceil_mode", 0) != 0;
    if (roundUp && room < 0 && room > -w.strides[i] && w.dilations[i] == 1) {
      // One window, which hangs over the end: what lies beyond is not in it.
      w.kernel[i] += room;
      room = 0;
    }
    if (room < 0)
      return b.fail() << "expected a window no larger than the padded input, got kernel " << w.kernel[i]
                      << " (dilation " << w.dilations[i] << ") over extent " << in[i] << " with pads " << low << " and "
                      << high;
    if (roundUp) {
      // Round up, but no window starts in the padding at the end.
      int64_t out = (room + w.strides[i] - 1) / w.strides[i] + 1;
      if ((out - 1) * w.strides[i] >= in[i] + low)
        --out;
      high += std::max<int64_t>((out - 1) * w.strides[i] - room, 0);
    }
    w.low.push_back(low);
    w.high.push_back(high);
  }
  return w;
}

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

static LogicalResult importConv(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  int64_t groups = b.intAttr("group", 1);
  ArrayRef<int64_t> x = b.shape(0), w = b.shape(1);
  if (groups < 1 || x[1] != groups * w[1] || w[0] % groups != 0)
    return b.fail() << "expected " << x[1] << " channels in " << groups << " groups, got a filter for " << w[1]
                    << " channels a group and " << w[0] << " outputs";
  SmallVector<int64_t> kernel = b.intsAttr("kernel_shape", w.drop_front(2));
  if (ArrayRef<int64_t>(kernel) != w.drop_front(2))
    return b.fail() << "expected kernel_shape [" << w.drop_front(2) << "] as in the filter, got [" << kernel << "]";
  FailureOr<Window> window = windowOf(b, x.drop_front(2), kernel);
  if (failed(window) || failed(checkBias(b, 2, w[0])))
    return failure();
  Value y = b.make<ConvOp>(b.in(0), b.in(1), window->strides, window->dilations, window->low, window->high, groups,
                           NumericsAttr());
  return b.done(b.has(2) ? addBias(b, y, b.in(2)) : y);
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
  SmallVector<int64_t> wanted = b.intsAttr("output_shape");
  if (failed(b.checkWindow("strides", strides, rank)) || failed(b.checkWindow("dilations", dilations, rank)) ||
      failed(b.checkPads(pads, rank, /*cropping=*/true)))
    return failure();
  if (extra.size() != rank || llvm::any_of(extra, [](int64_t v) { return v < 0 || v > Binder::mostWindow; }))
    return b.fail() << "expected " << rank << " entries of output_padding, got [" << extra << "]";
  if (!wanted.empty() &&
      (wanted.size() < rank || llvm::any_of(wanted, [](int64_t v) { return v < 1 || v > int64_t(1) << 31; })))
    return b.fail() << "expected " << rank << " positive entries of output_shape, got [" << wanted << "]";
  StringRef mode = b.stringAttr("auto_pad", "NOTSET");
  SmallVector<int64_t> shape = {x[0], w[1] * groups}, low, high;
  for (size_t i = 0; i < rank; ++i) {
    FailureOr<int64_t> spread = b.spread(x[i + 2], strides[i]), span = b.spread(w[i + 2], dilations[i]);
    if (failed(spread) || failed(span))
      return failure();
    int64_t full = *spread + *span + 1 + extra[i], begin = pads[i], end = pads[rank + i];
    bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (same || !wanted.empty()) {
      int64_t out = wanted.empty() ? x[i + 2] * strides[i] : wanted[wanted.size() - rank + i];
      int64_t total = full - out;
      begin = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    }
    int64_t out = full - begin - end;
    if (out < 1 || out > (int64_t(1) << 31))
      return b.fail() << "expected a positive output extent, got " << out << " on spatial axis " << i;
    // The convolution whose data gradient this is reads `extra` fewer samples at the end.
    shape.push_back(out);
    low.push_back(begin);
    high.push_back(end - extra[i]);
  }
  if (failed(checkBias(b, 2, shape[1])))
    return failure();
  auto type = RankedTensorType::get(shape, b.element(0));
  Value y = b.make<ConvBackwardDataOp>(type, b.in(0), b.in(1), b.list(strides), b.list(dilations), b.list(low),
                                       b.list(high), b.i64(groups), NumericsAttr());
  return b.done(b.has(2) ? addBias(b, y, b.in(2)) : y);
}

static LogicalResult checkPooled(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  if (b.rank(0) < 3 || !b.isFloat(0))
    return b.fail() << "expected a float tensor with N, C and spatial dimensions, got " << b.in(0).getType();
  return success();
}

static LogicalResult importMaxPool(Binder &b) {
  if (failed(checkPooled(b)))
    return failure();
  ArrayRef<int64_t> x = b.shape(0);
  FailureOr<Window> w = windowOf(b, x.drop_front(2), b.intsAttr("kernel_shape"));
  if (failed(w))
    return failure();
  auto op = MaxPoolOp::create(b.builder, b.loc, b.in(0), w->kernel, w->strides, w->dilations, w->low, w->high);
  if (b.wants(1)) {
    if (b.intAttr("storage_order", 0))
      return b.fail() << "expected storage_order 0 (row-major indices), got 1";
    // ONNX counts positions in the whole tensor, core in each plane.
    Type i64 = b.builder.getI64Type();
    int64_t plane = 1;
    for (int64_t extent : x.drop_front(2))
      plane *= extent;
    RankedTensorType planes = RankedTensorType::get({x[0], x[1]}, i64);
    Value image = IotaOp::create(b.builder, b.loc, planes, b.i64(0));
    Value channel = IotaOp::create(b.builder, b.loc, planes, b.i64(1));
    Value base = b.mul(b.add(b.mul(image, static_cast<double>(x[1])), channel), static_cast<double>(plane));
    Value indices = b.cast(op.getIndices(), i64);
    if (failed(b.set(1, b.add(indices, b.broadcast(base, tensorType(indices).getShape(), {0, 1})))))
      return failure();
  }
  return b.done(op.getY());
}

static LogicalResult importAveragePool(Binder &b) {
  if (failed(checkPooled(b)))
    return failure();
  ArrayRef<int64_t> x = b.shape(0);
  FailureOr<Window> w = windowOf(b, x.drop_front(2), b.intsAttr("kernel_shape"));
  if (failed(w))
    return failure();
  bool countPadding = b.intAttr("count_include_pad", 0);
  if (countPadding && b.intAttr("ceil_mode", 0)) {
    // Only the pads that the node names count; those that rounding up adds do not.
    SmallVector<int64_t> named = b.intsAttr("pads", SmallVector<int64_t>(2 * w->kernel.size(), 0));
    if (!llvm::equal(ArrayRef(named).take_back(w->high.size()), w->high)) {
      SmallVector<int64_t> low(b.rank(0), 0), high(b.rank(0), 0), zero(b.rank(0), 0);
      for (size_t i = 0; i < w->kernel.size(); ++i) {
        low[i + 2] = w->low[i];
        high[i + 2] = named[w->kernel.size() + i];
        w->low[i] = 0;
        w->high[i] -= high[i + 2];
      }
      Value padded = b.make<PadOp>(b.in(0), b.list(low), b.list(high), b.list(zero), b.f64(0));
      return b.done(b.make<AvgPoolOp>(padded, w->kernel, w->strides, w->dilations, w->low, w->high, false));
    }
  }
  return b.done(b.make<AvgPoolOp>(b.in(0), w->kernel, w->strides, w->dilations, w->low, w->high, countPadding));
}

/// |x|^p, and the root of a sum of them.
static Value power(Binder &b, Value x, int64_t p) {
  Value size = b.make<AbsOp>(x);
  return p == 1 ? size : p == 2 ? b.mul(x, x) : b.make<PowOp>(size, b.splatLike(size, static_cast<double>(p)));
}
static Value rootOf(Binder &b, Value sum, int64_t p) {
  return p == 1 ? sum : p == 2 ? b.make<SqrtOp>(sum) : b.make<PowOp>(sum, b.splatLike(sum, 1 / static_cast<double>(p)));
}

static LogicalResult checkPower(Binder &b, int64_t p) {
  if (p < 1)
    return b.fail() << "expected p of 1 or more, got " << p;
  return success();
}

static LogicalResult importLpPool(Binder &b) {
  int64_t p = b.intAttr("p", 2);
  if (failed(checkPooled(b)) || failed(checkPower(b, p)))
    return failure();
  FailureOr<Window> w = windowOf(b, b.shape(0).drop_front(2), b.intsAttr("kernel_shape"));
  if (failed(w))
    return failure();
  double count = 1;
  for (int64_t extent : w->kernel)
    count *= static_cast<double>(extent);
  Value powers = power(b, b.widen(b.in(0)), p);
  Value mean = b.make<AvgPoolOp>(powers, w->kernel, w->strides, w->dilations, w->low, w->high, true);
  return b.done(b.cast(rootOf(b, b.mul(mean, count), p), b.element(0)));
}

static LogicalResult importGlobalLpPool(Binder &b) {
  int64_t p = b.intAttr("p", 2);
  if (failed(checkPooled(b)) || failed(checkPower(b, p)))
    return failure();
  SmallVector<int64_t> axes = axisRange(2, b.rank(0)), shape(b.rank(0), 1);
  shape[0] = b.shape(0)[0];
  shape[1] = b.shape(0)[1];
  Value sum = b.sum(power(b, b.widen(b.in(0)), p), axes);
  return b.done(b.reshape(b.cast(rootOf(b, sum, p), b.element(0)), shape));
}

template <ReduceKind kind> static LogicalResult importGlobalPool(Binder &b) {
  if (failed(checkPooled(b)))
    return failure();
  SmallVector<int64_t> axes = axisRange(2, b.rank(0)), shape(b.rank(0), 1);
  shape[0] = b.shape(0)[0];
  shape[1] = b.shape(0)[1];
  return b.done(b.reshape(b.reduce(kind, b.in(0), axes), shape));
}

void mpt::addConvRules(RuleTable &t) {
  t.on("Conv", 1, importConv);
  t.on("ConvTranspose", 1, importConvTranspose);
  t.on("MaxPool", 1, importMaxPool);
  t.on("AveragePool", 7, importAveragePool);
  t.on("LpPool", 2, importLpPool);
  t.on("GlobalLpPool", 2, importGlobalLpPool);
  t.on("GlobalAveragePool", 1, importGlobalPool<ReduceKind::mean>);
  t.on("GlobalMaxPool", 1, importGlobalPool<ReduceKind::max>);
}
