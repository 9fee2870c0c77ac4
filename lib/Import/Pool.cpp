// SPDX-License-Identifier: Apache-2.0
// Pooling over N, C and spatial dimensions, and its inverse.
#include "Regions.h"
#include "Roots.h"
#include "Windows.h"

using namespace mlir;
using namespace mpt;

static LogicalResult checkPooled(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  if (b.rank(0) < 3 || !b.isFloat(0))
    return b.fail() << "expected a float tensor with N, C and spatial dimensions, got " << b.in(0).getType();
  return success();
}

/// Positions in a plane of `extents`, counted along the first axis first instead of the last.
static Value columnMajor(Binder &b, Value position, ArrayRef<int64_t> extents) {
  Value result = b.splatLike(position, 0);
  int64_t stride = 1;
  for (int64_t extent : extents)
    stride *= extent;
  for (int64_t extent : llvm::reverse(extents)) {
    auto size = static_cast<double>(extent);
    stride /= extent;
    Value at = b.make<ModOp>(position, b.splatLike(position, size));
    result = b.add(result, b.mul(at, static_cast<double>(stride)));
    position = b.div(position, b.splatLike(position, size));
  }
  return result;
}

static LogicalResult importMaxPool(Binder &b) {
  // Core has windows over floats; integers of 8 bits are exact in FP32.
  bool isByte = isa<IntegerType>(b.element(0)) && b.element(0).getIntOrFloatBitWidth() == 8;
  if (!isByte && failed(checkPooled(b)))
    return failure();
  ArrayRef<int64_t> x = b.shape(0);
  if (x.size() < 3)
    return b.fail() << "expected N, C and spatial dimensions, got " << b.in(0).getType();
  FailureOr<Window> w = windowOf(b, x.drop_front(2), b.intsAttr("kernel_shape"));
  if (failed(w))
    return failure();
  b.ignore({"storage_order"}); // of the indices
  Value input = isByte ? b.cast(b.in(0), b.builder.getF32Type()) : b.in(0);
  auto op = MaxPoolOp::create(b.builder, b.loc, input, w->kernel, w->strides, w->dilations, w->low, w->high);
  if (b.wants(1)) {
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
    if (b.intAttr("storage_order", 0))
      indices = columnMajor(b, indices, x.drop_front(2));
    if (failed(b.set(1, b.add(indices, b.broadcast(base, tensorType(indices).getShape(), {0, 1})))))
      return failure();
  }
  return b.done(b.cast(op.getY(), b.element(0)));
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
    // Only the pads that the node names count; pads that rounding up adds do not.
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

/// |x|^p.
static Value power(Binder &b, Value x, int64_t p) {
  Value size = b.make<AbsOp>(x);
  return p == 1 ? size : p == 2 ? b.mul(x, x) : b.make<PowOp>(size, b.splatLike(size, static_cast<double>(p)));
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
  return b.done(b.cast(rootOfPowers(b, b.mul(mean, count), p), b.element(0)));
}

static LogicalResult importGlobalLpPool(Binder &b) {
  int64_t p = b.intAttr("p", 2);
  if (failed(checkPooled(b)) || failed(checkPower(b, p)))
    return failure();
  SmallVector<int64_t> axes = axisRange(2, b.rank(0)), shape(b.rank(0), 1);
  shape[0] = b.shape(0)[0];
  shape[1] = b.shape(0)[1];
  Value sum = b.sum(power(b, b.widen(b.in(0)), p), axes);
  return b.done(b.reshape(b.cast(rootOfPowers(b, sum, p), b.element(0)), shape));
}

template <ReduceKind kind> static LogicalResult importGlobalPool(Binder &b) {
  if (failed(checkPooled(b)))
    return failure();
  SmallVector<int64_t> axes = axisRange(2, b.rank(0)), shape(b.rank(0), 1);
  shape[0] = b.shape(0)[0];
  shape[1] = b.shape(0)[1];
  return b.done(b.reshape(b.reduce(kind, b.in(0), axes), shape));
}

/// x [N, C, ...] at places of the flat result, which MaxPool counted; the rest is 0.
static LogicalResult importMaxUnpool(Binder &b) {
  ArrayRef<int64_t> x = b.shape(0);
  if (x.size() < 3 || x.size() > 5 || !b.isFloat(0) || b.shape(1) != x)
    return b.fail() << "expected float x [N, C, ...] and an index for each of its elements, got " << b.in(0).getType()
                    << " and " << b.in(1).getType();
  size_t rank = x.size() - 2;
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0),
      kernel = b.intsAttr("kernel_shape"), strides = b.intsAttr("strides", ones), pads = b.intsAttr("pads", zeros);
  if (failed(b.checkWindow("kernel extents", kernel, rank)) || failed(b.checkWindow("strides", strides, rank)) ||
      failed(b.checkPads(pads, rank, /*cropping=*/false)))
    return failure();
  SmallVector<int64_t> pooled(x.take_front(2));
  for (size_t i = 0; i < rank; ++i) {
    FailureOr<int64_t> spread = b.spread(x[i + 2], strides[i]);
    if (failed(spread))
      return failure();
    pooled.push_back(std::max<int64_t>(*spread - pads[i] - pads[rank + i] + kernel[i], 0));
  }
  SmallVector<int64_t> shape = pooled;
  if (b.has(2)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(2, "the result's extents");
    if (failed(given))
      return failure();
    if (given->size() != x.size() ||
        !llvm::all_of(llvm::zip(*given, pooled), [](auto pair) { return std::get<0>(pair) >= std::get<1>(pair); }))
      return b.fail() << "expected a result of at least [" << pooled << "], got [" << *given << "]";
    shape = *given;
  }
  if (failed(b.checkShape(pooled)) || failed(b.checkShape(shape)))
    return failure();
  int64_t count = ShapedType::getNumElements(x);
  RankedTensorType flat = tensorType(b.in(0)).clone({ShapedType::getNumElements(pooled)});
  Value y = b.make<ScatterElementsOp>(b.splat(flat, 0.0), b.reshape(b.in(1), {count}), b.reshape(b.in(0), {count}), 0,
                                      ScatterKind::assign);
  y = b.reshape(y, pooled);
  if (shape != pooled) {
    SmallVector<int64_t> low(shape.size(), 0), high;
    for (auto [to, from] : llvm::zip_equal(shape, pooled))
      high.push_back(to - from);
    y = b.make<PadOp>(y, b.list(low), b.list(high), b.list(low), b.f64(0));
  }
  return b.done(y);
}

void mpt::addPoolRules(RuleTable &t) {
  t.on("MaxPool", 1, takes(1, importMaxPool), NumericClass::Movement);
  t.on("AveragePool", 7, importAveragePool, {NumericClass::Neutral, Arithmetic::Averages});
  t.on("LpPool", 2, importLpPool, NumericClass::Reduction);
  t.on("GlobalLpPool", 2, importGlobalLpPool, NumericClass::Reduction);
  t.on("GlobalAveragePool", 1, importGlobalPool<ReduceKind::mean>, {NumericClass::Neutral, Arithmetic::Averages});
  t.on("GlobalMaxPool", 1, importGlobalPool<ReduceKind::max>, NumericClass::Movement);
  t.on("MaxUnpool", 9, takes(2, importMaxUnpool), NumericClass::Movement);
  t.on("RoiAlign", 10, importRoiAlign, {NumericClass::Neutral, Arithmetic::Samples});
  t.on("MaxRoiPool", 1, importMaxRoiPool, NumericClass::Movement);
  t.on("NonMaxSuppression", 10, importNonMaxSuppression, NumericClass::Pinned);
}
