// SPDX-License-Identifier: Apache-2.0
// Images read at the points of a grid, and grids that matrices make.
#include "GridSample.h"

#include "Sampling.h"

using namespace mlir;
using namespace mpt;

namespace {
class GridSampler {
public:
  GridSampler(Binder &b, StringRef padding, bool alignCorners) : b(b), padding(padding), alignCorners(alignCorners) {}

  AxisTaps taps(Value coordinate, int64_t extent, StringRef mode);

private:
  Tap tap(Value position, Value weight, int64_t extent);
  Value cubic(Value distance, bool near);

  Binder &b;
  StringRef padding;
  bool alignCorners;
};
} // namespace

/// Keys' cubic with coefficient -3/4 at a distance in [0, 1] (`near`) or [1, 2].
Value GridSampler::cubic(Value distance, bool near) {
  const double a = -0.75;
  SmallVector<double> c =
      near ? SmallVector<double>{a + 2, -(a + 3), 0, 1} : SmallVector<double>{a, -5 * a, 8 * a, -4 * a};
  Value sum = b.splatLike(distance, c[0]);
  for (unsigned i = 1; i < 4; ++i)
    sum = b.add(b.mul(sum, distance), c[i]);
  return sum;
}

/// `position` brought into the image as the padding mode says.
Tap GridSampler::tap(Value position, Value weight, int64_t extent) {
  double last = static_cast<double>(extent) - 1;
  Tap tap{{}, weight, {}};
  if (padding == "zeros")
    tap.inside = b.make<AndOp>(b.compare(Predicate::ge, position, 0.0), b.compare(Predicate::le, position, last));
  if (padding == "reflection") {
    // A triangle wave between the centres, or the outer edges, of the first and the last sample.
    double low = alignCorners ? 0 : -0.5, span = alignCorners ? last : last + 1, period = 2 * span;
    if (span > 0) {
      Value from = b.make<AbsOp>(b.add(position, -low));
      Value turns = b.make<FloorOp>(b.mul(from, 1 / period));
      Value left = b.sub(from, b.mul(turns, period));
      Value back = b.add(b.neg(left), period);
      position = b.add(b.make<MinOp>(left, back), low);
    }
  }
  tap.index = b.cast(b.make<ClampOp>(position, APFloat(0.0), APFloat(last)), b.builder.getI64Type());
  return tap;
}

AxisTaps GridSampler::taps(Value coordinate, int64_t extent, StringRef mode) {
  double size = static_cast<double>(extent);
  // From [-1, 1] to samples: the outermost centres, or the outer edges, are at -1 and 1.
  Value at = alignCorners ? b.mul(b.add(coordinate, 1.0), (size - 1) / 2)
                          : b.add(b.mul(b.add(coordinate, 1.0), size / 2), -0.5);
  if (mode == "nearest")
    return {tap(b.make<RoundOp>(at), {}, extent)};
  if (mode == "cubic" && padding == "border") {
    // Points outside move to the outermost sample first; with the other modes that comes to the same.
    double low = alignCorners ? 0 : -0.5;
    Value outside = b.make<OrOp>(b.compare(Predicate::lt, at, low), b.compare(Predicate::gt, at, size - 1 - low));
    at = b.select(outside, b.make<ClampOp>(at, APFloat(0.0), APFloat(size - 1)), at);
  }
  Value below = b.make<FloorOp>(at), part = b.sub(at, below), rest = b.add(b.neg(part), 1.0);
  if (mode == "linear")
    return {tap(below, rest, extent), tap(b.add(below, 1.0), part, extent)};
  return {tap(b.add(below, -1.0), cubic(b.add(part, 1.0), false), extent), tap(below, cubic(part, true), extent),
          tap(b.add(below, 1.0), cubic(rest, true), extent),
          tap(b.add(below, 2.0), cubic(b.add(rest, 1.0), false), extent)};
}

/// x [N, C, spatial...] and grid [N, out..., r], whose last axis counts the spatial axes from the last to the first.
LogicalResult mpt::importGridSample(Binder &b) {
  ArrayRef<int64_t> x = b.shape(0), grid = b.shape(1);
  int64_t rank = static_cast<int64_t>(x.size()) - 2;
  if (rank < 1 || static_cast<int64_t>(grid.size()) != rank + 2 || grid.back() != rank || grid.front() != x.front() ||
      !b.isFloat(0) || !b.isFloat(1))
    return b.fail() << "expected float x [N, C, ...] and a grid [N, ..., " << std::max<int64_t>(rank, 1)
                    << "] of its rank, got " << b.in(0).getType() << " and " << b.in(1).getType();
  StringRef mode = b.stringAttr("mode", b.version() < 20 ? "bilinear" : "linear");
  if (mode.starts_with("bi"))
    mode = mode.drop_front(2);
  StringRef padding = b.stringAttr("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    return b.fail() << "expected mode linear, nearest or cubic, got '" << mode << "'";
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return b.fail() << "expected padding_mode zeros, border or reflection, got '" << padding << "'";
  SmallVector<int64_t> outShape(grid.drop_back());
  int64_t batch = x[0], channels = x[1], points = ShapedType::getNumElements(ArrayRef(outShape).drop_front());
  int64_t samples = ShapedType::getNumElements(x.drop_front(2));
  if (points == 0 || samples == 0 || batch == 0 || channels == 0)
    return b.fail() << "expected tensors with elements, got " << b.in(0).getType() << " and " << b.in(1).getType();

  Value coordinates = b.reshape(b.widen(b.in(1)), {batch, points, rank});
  GridSampler sampler(b, padding, b.intAttr("align_corners", 0) != 0);
  SmallVector<AxisTaps> axes; // from the first spatial axis to the last
  for (int64_t i = 0; i < rank; ++i) {
    Value along = b.slice(coordinates, {0, 0, rank - 1 - i}, {batch, points, 1});
    axes.push_back(sampler.taps(b.reshape(along, {batch, points}), x[i + 2], mode));
  }
  Value sum = readSamples(b, rowsOf(b, b.in(0)), x.drop_front(2), axes);
  outShape.insert(outShape.begin() + 1, channels);
  return b.done(b.reshape(b.transpose(sum, {0, 2, 1}), outShape));
}

/// Where sample `i` of `extent` lies from -1 to 1: these are the centres of the outermost samples, or their outer
/// edges.
static double positionOf(int64_t i, int64_t extent, bool alignCorners) {
  double step = 2.0 / static_cast<double>(std::max<int64_t>(alignCorners ? extent - 1 : extent, 1));
  return -1 + (static_cast<double>(i) + (alignCorners ? 0 : 0.5)) * step;
}

/// Positions x, y, z, 1 in columns, times a matrix each image. The function of the operator takes no batch of one.
LogicalResult mpt::importAffineGrid(Binder &b) {
  FailureOr<SmallVector<int64_t>> size = b.ints(1, "size");
  if (failed(size))
    return failure();
  auto axes = static_cast<int64_t>(size->size()) - 2;
  if ((axes != 2 && axes != 3) || !b.isFloat(0) || b.shape(0) != ArrayRef<int64_t>{size->front(), axes, axes + 1})
    return b.fail() << "expected a size [N, C, H, W] or [N, C, D, H, W] and float matrices [N, 2, 3] or [N, 3, 4], got "
                    << size->size() << " extents and " << b.in(0).getType();
  SmallVector<int64_t> shape{size->front()};
  shape.append(size->begin() + 2, size->end());
  if (failed(b.checkShape(shape)))
    return failure();
  bool alignCorners = b.intAttr("align_corners", 0) != 0;
  Value theta = b.widen(b.in(0));
  auto element = cast<FloatType>(tensorType(theta).getElementType());
  int64_t points = ShapedType::getNumElements(ArrayRef(shape).drop_front());
  SmallVector<APFloat> base;
  auto add = [&](double value) {
    bool loses;
    base.emplace_back(value).convert(element.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
  };
  for (int64_t axis = axes, inner = 1; axis > 0; inner *= shape[axis--]) // the last one first
    for (int64_t point = 0; point < points; ++point)
      add(positionOf(point / inner % shape[axis], shape[axis], alignCorners));
  for (int64_t point = 0; point < points; ++point)
    add(1);
  auto type = RankedTensorType::get({axes + 1, points}, element);
  Value grid =
      b.broadcast(b.make<ConstantOp>(DenseElementsAttr::get(type, base)), {shape.front(), axes + 1, points}, {1, 2});
  shape.push_back(axes);
  return b.done(b.cast(b.reshape(b.transpose(b.matmul(theta, grid), {0, 2, 1}), shape), b.element(0)));
}
