// SPDX-License-Identifier: Apache-2.0
// Reductions over axes, running sums and positions of extremes.
#include "Roots.h"

#include <limits>

using namespace mlir;
using namespace mpt;

/// The axes of a reduction: an attribute in old versions, an operand since `asOperand`; empty means all, or none.
static FailureOr<SmallVector<int64_t>> reducedAxes(Binder &b, int64_t asOperand) {
  b.ignore({"noop_with_empty_axes"}); // where there are axes
  SmallVector<int64_t> axes;
  if (b.version() < asOperand) {
    axes = b.intsAttr("axes");
  } else if (b.has(1)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "axes");
    if (failed(given))
      return failure();
    axes = *given;
  }
  if (axes.empty() && b.version() >= asOperand && b.intAttr("noop_with_empty_axes", 0))
    return axes;
  return axes.empty() ? axisRange(0, b.rank(0)) : b.axes(axes, b.rank(0));
}

/// `reduced` with the reduced axes as extents of 1 if the node keeps them.
static LogicalResult finish(Binder &b, Value reduced, ArrayRef<int64_t> axes) {
  if (!b.intAttr("keepdims", 1))
    return b.done(reduced);
  SmallVector<int64_t> shape(b.shape(0));
  for (int64_t axis : axes)
    shape[axis] = 1;
  return b.done(b.reshape(reduced, shape));
}

namespace {
enum class Before { none, absolute, square, exponential };
enum class After { none, root, logarithm };
} // namespace

/// log sum e^x = m + log sum e^(x - m), m the largest value. Rows of -inf alone stay so, and pass no gradient.
static Value logOfExponentials(Binder &b, Value x, ArrayRef<int64_t> axes) {
  Value largest = b.reduce(ReduceKind::max, x, axes), zero = b.splatLike(largest, 0);
  Value isInfinite = b.make<IsInfOp>(largest),
        isEmpty = b.make<AndOp>(isInfinite, b.compare(Predicate::lt, largest, 0.0));
  Value shift = b.select(isInfinite, zero, largest);
  Value sum = b.sum(b.make<ExpOp>(b.sub(x, b.broadcastAlong(shift, b.shape(0), axes))), axes);
  Value log = b.add(b.make<LogOp>(b.select(isEmpty, b.splatLike(sum, 1), sum)), shift);
  return b.select(isEmpty, b.splatLike(log, -std::numeric_limits<double>::infinity()), log);
}

template <ReduceKind kind, Before before, After after, int asOperand> static LogicalResult importReduce(Binder &b) {
  FailureOr<SmallVector<int64_t>> axes = reducedAxes(b, asOperand);
  if (failed(axes))
    return failure();
  Value x = b.in(0);
  Type element = b.element(0);
  bool logical = element.isInteger(1);
  if (logical)
    x = b.cast(x, b.builder.getIntegerType(8));
  if (!b.isFloat(0) && (before == Before::exponential || after != After::none))
    x = b.cast(x, b.builder.getF64Type());
  if (before == Before::absolute)
    x = b.make<AbsOp>(x);
  if (before == Before::square)
    x = b.mul(x, x);
  if (before == Before::exponential)
    return finish(b, b.cast(logOfExponentials(b, x, *axes), element), *axes);
  Value y = b.reduce(kind, x, *axes);
  if (after == After::root)
    y = rootOfPowers(b, y);
  if (after == After::logarithm)
    y = b.make<LogOp>(y);
  if (logical) // over nothing at all, the least and the largest number
    return finish(b, b.compare(Predicate::gt, y, 0.0), *axes);
  return finish(b, b.cast(y, element), *axes);
}

/// The axis of a running sum or product.
static FailureOr<int64_t> runningAxis(Binder &b) {
  FailureOr<SmallVector<int64_t>> given = b.ints(1, "axis");
  if (failed(given))
    return failure();
  if (given->size() != 1)
    return b.fail() << "expected one number as axis, got " << given->size();
  return b.axis(given->front(), b.rank(0));
}

/// Running products in log2(n) steps of shifted copies (Hillis and Steele, 1986).
static LogicalResult importCumProd(Binder &b) {
  FailureOr<int64_t> axis = runningAxis(b);
  if (failed(axis))
    return failure();
  bool reverse = b.intAttr("reverse", 0) != 0;
  SmallVector<int64_t> shape(b.shape(0)), zero(b.rank(0), 0);
  int64_t extent = shape[*axis];
  auto shifted = [&](Value x, int64_t distance) {
    SmallVector<int64_t> starts(zero), sizes(shape), low(zero), high(zero);
    starts[*axis] = reverse ? distance : 0;
    sizes[*axis] = extent - distance;
    (reverse ? high : low)[*axis] = distance;
    return b.make<PadOp>(b.slice(x, starts, sizes), b.list(low), b.list(high), b.list(zero), b.f64(1));
  };
  Value x = b.in(0);
  if (b.intAttr("exclusive", 0) && extent > 0)
    x = extent == 1 ? b.splatLike(x, 1) : shifted(x, 1);
  for (int64_t distance = 1; distance < extent; distance *= 2)
    x = b.mul(x, shifted(x, distance));
  return b.done(x);
}

static LogicalResult importCumSum(Binder &b) {
  FailureOr<int64_t> axis = runningAxis(b);
  if (failed(axis))
    return failure();
  return b.done(b.make<CumSumOp>(b.in(0), *axis, b.intAttr("exclusive", 0) != 0, b.intAttr("reverse", 0) != 0));
}

template <ReduceKind kind> static LogicalResult importArg(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  if (failed(axis))
    return failure();
  Value y = b.make<ArgReduceOp>(b.in(0), kind, *axis, b.intAttr("select_last_index", 0) != 0);
  return finish(b, y, {*axis});
}

/// So many positions are found one after the other; more, by comparing all pairs along the axis.
constexpr int64_t mostPasses = 256;
constexpr int64_t mostPairs = int64_t(1) << 32;

/// Positions of the `count` largest keys along the axis, a pass over the axis for each.
static Value positionsByPasses(Binder &b, Value keys, int64_t axis, int64_t count) {
  Type i64 = b.builder.getI64Type();
  SmallVector<int64_t> shape(tensorType(keys).getShape()), single(shape), others = otherAxes(shape.size(), {axis});
  single[axis] = 1;
  bool isFloat = isa<FloatType>(tensorType(keys).getElementType());
  Value position = IotaOp::create(b.builder, b.loc, RankedTensorType::get(shape, i64), b.i64(axis));
  Value lowest = b.splatLike(keys, isFloat ? -std::numeric_limits<double>::infinity() : -0x1p63);
  Value taken = b.splat(tensorType(keys).clone(b.builder.getI1Type()), 0);
  SmallVector<Value> found;
  for (int64_t i = 0; i < count; ++i) {
    // The first position not yet taken that has the largest value left; the lowest may be a value.
    Value left = b.select(taken, lowest, keys);
    Value largest = b.broadcast(b.reduce(ReduceKind::max, left, {axis}), shape, others);
    Value candidate = b.make<AndOp>(b.compare(Predicate::eq, left, largest), b.make<NotOp>(taken));
    Value at =
        b.cast(b.make<ArgReduceOp>(b.cast(candidate, b.builder.getF32Type()), ReduceKind::max, axis, false), i64);
    found.push_back(b.reshape(at, single));
    taken = b.make<OrOp>(taken, b.compare(Predicate::eq, position, b.broadcast(at, shape, others)));
  }
  return found.size() == 1 ? found.front() : b.concat(found, axis);
}

/// The same: an element's place is the number of elements that are larger, or equal and before it. NaN is largest.
static Value positionsByRank(Binder &b, Value keys, int64_t axis, int64_t count) {
  Type i64 = b.builder.getI64Type();
  SmallVector<int64_t> shape(tensorType(keys).getShape()), pairs(shape), ours, theirs, zero(shape.size(), 0);
  pairs.insert(pairs.begin() + axis, shape[axis]);
  for (int64_t i = 0, e = shape.size(); i < e; ++i) {
    ours.push_back(i + (i > axis));
    theirs.push_back(i + (i >= axis));
  }
  if (isa<FloatType>(tensorType(keys).getElementType()))
    keys = b.select(b.compare(Predicate::ne, keys, keys), b.splatLike(keys, std::numeric_limits<double>::infinity()),
                    keys);
  auto places = [&](ArrayRef<int64_t> extents, int64_t along) -> Value {
    return IotaOp::create(b.builder, b.loc, RankedTensorType::get(extents, i64), b.i64(along));
  };
  Value own = b.broadcast(keys, pairs, ours), other = b.broadcast(keys, pairs, theirs);
  Value tied = b.make<AndOp>(b.compare(Predicate::eq, other, own),
                             b.compare(Predicate::lt, places(pairs, axis + 1), places(pairs, axis)));
  Value isBefore = b.make<OrOp>(b.compare(Predicate::gt, other, own), tied);
  Value rank = b.cast(b.sum(b.cast(isBefore, b.builder.getF32Type()), {axis + 1}), i64);
  Value position = places(shape, axis);
  Value order = b.make<ScatterElementsOp>(b.splatLike(position, 0), rank, position, axis, ScatterKind::assign);
  shape[axis] = count;
  return b.slice(order, zero, shape);
}

static LogicalResult importTopK(Binder &b) {
  b.ignore({"sorted"}); // sorted serves who wants no order too
  int64_t count = b.intAttr("k", 0);
  if (b.version() >= 10) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "k");
    if (failed(given) || given->size() != 1)
      return failed(given) ? failure() : LogicalResult(b.fail() << "expected one number as k, got " << given->size());
    count = given->front();
  }
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -1), b.rank(0));
  if (failed(axis))
    return failure();
  ArrayRef<int64_t> shape = b.shape(0);
  int64_t extent = shape[*axis];
  if (count < 1 || count > extent)
    return b.fail() << "expected k from 1 to " << extent << ", got " << count;
  if (count > mostPasses && ShapedType::getNumElements(shape) > mostPairs / extent)
    return b.fail() << "expected k up to " << mostPasses
                    << " of a tensor with more than 2^32 pairs along the axis, got " << count << " of "
                    << b.in(0).getType();
  bool isFloat = b.isFloat(0);
  Value x = b.in(0), keys = isFloat ? b.widen(x) : b.cast(x, b.builder.getI64Type());
  if (!b.intAttr("largest", 1)) // -1 - x is an integer for the least one too
    keys = isFloat ? b.neg(keys) : b.sub(b.splatLike(keys, -1), keys);
  Value indices =
      count > mostPasses ? positionsByRank(b, keys, *axis, count) : positionsByPasses(b, keys, *axis, count);
  if (b.wants(1) && failed(b.set(1, indices)))
    return failure();
  return b.done(b.make<GatherElementsOp>(x, indices, *axis));
}

static LogicalResult importHardmax(Binder &b) {
  bool flatten = b.version() < 13;
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", flatten ? 1 : -1), b.rank(0));
  if (failed(axis))
    return failure();
  SmallVector<int64_t> shape(b.shape(0));
  Value x = b.in(0);
  // Before opset 13 all axes from `axis` on are one.
  if (flatten) {
    SmallVector<int64_t> rows = {1, 1};
    for (auto [i, extent] : llvm::enumerate(shape))
      rows[static_cast<int64_t>(i) < *axis ? 0 : 1] *= extent;
    x = b.reshape(x, rows);
    axis = 1;
  }
  ArrayRef<int64_t> extents = tensorType(x).getShape();
  Type i64 = b.builder.getI64Type();
  Value at = b.cast(b.make<ArgReduceOp>(x, ReduceKind::max, *axis, false), i64);
  Value position = IotaOp::create(b.builder, b.loc, RankedTensorType::get(extents, i64), b.i64(*axis));
  Value hit = b.compare(Predicate::eq, position, b.broadcastAlong(at, extents, {*axis}));
  return b.done(b.reshape(b.cast(hit, b.element(0)), shape));
}

void mpt::addReduceRules(RuleTable &t) {
  t.on("ReduceSum", 1, takes(1, importReduce<ReduceKind::sum, Before::none, After::none, 13>),
       {NumericClass::Reduction, Arithmetic::Sums});
  t.on("ReduceMean", 1, takes(1, importReduce<ReduceKind::mean, Before::none, After::none, 18>),
       {NumericClass::Reduction, Arithmetic::Averages});
  t.on("ReduceMax", 1, takes(1, importReduce<ReduceKind::max, Before::none, After::none, 18>),
       {NumericClass::Movement, Arithmetic::Chooses});
  t.on("ReduceMin", 1, takes(1, importReduce<ReduceKind::min, Before::none, After::none, 18>),
       {NumericClass::Movement, Arithmetic::Chooses});
  t.on("ReduceProd", 1, takes(1, importReduce<ReduceKind::prod, Before::none, After::none, 18>),
       {NumericClass::Reduction, Arithmetic::Expands});
  t.on("ReduceL1", 1, takes(1, importReduce<ReduceKind::sum, Before::absolute, After::none, 18>),
       {NumericClass::Reduction, Arithmetic::Sums});
  t.on("ReduceL2", 1, takes(1, importReduce<ReduceKind::sum, Before::square, After::root, 18>),
       {NumericClass::Reduction, Arithmetic::Roots});
  t.on("ReduceSumSquare", 1, takes(1, importReduce<ReduceKind::sum, Before::square, After::none, 18>),
       {NumericClass::Reduction, Arithmetic::Expands});
  t.on("ReduceLogSum", 1, takes(1, importReduce<ReduceKind::sum, Before::none, After::logarithm, 18>),
       {NumericClass::Reduction, Arithmetic::Diverges});
  t.on("ReduceLogSumExp", 1, takes(1, importReduce<ReduceKind::sum, Before::exponential, After::none, 18>),
       {NumericClass::Reduction, Arithmetic::Bounds});
  t.on("CumSum", 11, takes(2, importCumSum), {NumericClass::Reduction, Arithmetic::Accumulates});
  t.on("TopK", 1, takes(1, importTopK), {NumericClass::Movement, Arithmetic::Finds});
  t.on("Hardmax", 1, takes(1, importHardmax), {NumericClass::Movement, Arithmetic::Bounds});
  t.on("ArgMax", 1, takes(1, importArg<ReduceKind::max>), {NumericClass::Movement, Arithmetic::Finds});
  t.on("ArgMin", 1, takes(1, importArg<ReduceKind::min>), {NumericClass::Movement, Arithmetic::Finds});
  t.on("CumProd", 26, takes(2, importCumProd), {NumericClass::Reduction, Arithmetic::Expands});
}
