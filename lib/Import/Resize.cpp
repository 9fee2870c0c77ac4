// SPDX-License-Identifier: Apache-2.0
// Resampling: ONNX's modes become, for each axis, the input positions and weights of every output sample. GridSample
// computes its positions at run time.
#include "Constants.h"
#include "Sampling.h"

#include <cmath>
#include <optional>

using namespace mlir;
using namespace mpt;

namespace {
/// Resampling of one axis.
struct Axis {
  int64_t in = 1, out = 1;
  double scale = 1;
  double length = 1; ///< the output's, before it is rounded down to whole samples
  double roiStart = 0, roiEnd = 1;
};
struct Modes {
  StringRef mode, coordinates, nearest;
  double cubic = -0.75;
  bool excludeOutside = false, antialias = false;
  double outside = 0; ///< value of tf_crop_and_resize beyond the input
};
/// `taps` positions and weights for every output sample.
struct Taps {
  int64_t taps = 1;
  SmallVector<int64_t> positions;
  SmallVector<double> weights;
};
} // namespace

/// Position in the input of output sample `i` (ONNX's coordinate_transformation_mode); none for an unknown mode.
static std::optional<double> sourceOf(const Axis &axis, StringRef mode, int64_t i) {
  double x = static_cast<double>(i), in = static_cast<double>(axis.in);
  if (mode == "asymmetric")
    return x / axis.scale;
  if (mode == "half_pixel")
    return (x + 0.5) / axis.scale - 0.5;
  if (mode == "pytorch_half_pixel")
    return axis.out > 1 ? (x + 0.5) / axis.scale - 0.5 : 0;
  if (mode == "align_corners")
    return axis.length != 1 ? x * (in - 1) / (axis.length - 1) : 0;
  if (mode == "tf_crop_and_resize") {
    double span = (axis.roiEnd - axis.roiStart) * (in - 1);
    return axis.roiStart * (in - 1) + (axis.length != 1 ? x * span / (axis.length - 1) : span / 2);
  }
  if (mode == "half_pixel_symmetric") {
    double adjustment = static_cast<double>(axis.out) / axis.length, centre = in / 2;
    return centre * (1 - adjustment) + (x + 0.5) / axis.scale - 0.5;
  }
  if (mode == "tf_half_pixel_for_nn")
    return (x + 0.5) / axis.scale;
  return std::nullopt;
}

static int64_t nearestSample(double x, StringRef mode) {
  if (mode == "floor")
    return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil")
    return static_cast<int64_t>(std::ceil(x));
  bool tie = x == std::floor(x) + 0.5;
  if (tie)
    return static_cast<int64_t>(mode == "round_prefer_ceil" ? std::ceil(x) : std::floor(x));
  return static_cast<int64_t>(std::round(x));
}

/// Weight of a sample at distance `d` from the point: a triangle, or Keys' cubic with coefficient a.
static double kernelAt(double d, const Modes &modes) {
  d = std::fabs(d);
  if (modes.mode == "linear")
    return std::max(1 - d, 0.0);
  double a = modes.cubic;
  if (d <= 1)
    return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/// Extents of results, and positions that the samples of one axis read.
constexpr int64_t mostSamples = 1 << 24, mostPositions = 1 << 26;

static FailureOr<Taps> tapsOf(Binder &b, const Axis &axis, const Modes &modes) {
  Taps result;
  bool nearest = modes.mode == "nearest";
  // Down-sampling with antialias stretches the kernel over the samples that one output covers.
  double stretch = modes.antialias && axis.scale < 1 && !nearest ? 1 / axis.scale : 1;
  double reach = (modes.mode == "linear" ? 1 : 2) * stretch;
  result.taps = nearest ? 1 : static_cast<int64_t>(std::ceil(2 * reach)) + (stretch > 1 ? 1 : 0);
  if (result.taps > mostPositions / axis.out)
    return b.fail() << "expected at most 2^26 positions along an axis, got " << axis.out << " samples of "
                    << result.taps << "; resize by less, or without antialias";
  for (int64_t i = 0; i < axis.out; ++i) {
    std::optional<double> x = sourceOf(axis, modes.coordinates, i);
    if (!x)
      return b.fail() << "expected a supported coordinate_transformation_mode, got '" << modes.coordinates
                      << "'; use half_pixel, align_corners or asymmetric";
    if (nearest) {
      result.positions.push_back(std::clamp<int64_t>(nearestSample(*x, modes.nearest), 0, axis.in - 1));
      result.weights.push_back(1);
      continue;
    }
    int64_t first = static_cast<int64_t>(std::floor(*x - reach)) + 1;
    double sum = 0;
    size_t begin = result.weights.size();
    for (int64_t t = 0; t < result.taps; ++t) {
      int64_t at = first + t;
      bool outside = at < 0 || at >= axis.in;
      double weight = kernelAt((static_cast<double>(at) - *x) / stretch, modes);
      if (outside && modes.excludeOutside)
        weight = 0;
      sum += weight;
      result.positions.push_back(std::clamp<int64_t>(at, 0, axis.in - 1));
      result.weights.push_back(weight);
    }
    if (sum != 0 && (modes.excludeOutside || modes.antialias))
      for (size_t t = begin; t < result.weights.size(); ++t)
        result.weights[t] /= sum;
  }
  return result;
}

/// The part of the input that tf_crop_and_resize spreads over the output: starts, then ends, of the resized axes.
static LogicalResult readRegion(Binder &b, ArrayRef<int64_t> axes, MutableArrayRef<Axis> result) {
  ElementsAttr values = b.required(1);
  if (!values || values.getNumElements() != static_cast<int64_t>(2 * axes.size()))
    return b.fail() << "expected constant regions of interest, " << 2 * axes.size() << " numbers, as operand 1";
  FailureOr<Tensor> region = Tensor::fromAttribute(values, b.loc);
  if (failed(region))
    return failure();
  for (auto [i, at] : llvm::enumerate(axes)) {
    Axis &axis = result[at < 0 ? at + static_cast<int64_t>(result.size()) : at];
    axis.roiStart = region->number(i);
    axis.roiEnd = region->number(axes.size() + i);
  }
  return success();
}

/// `y` where every axis' sample comes from within the input, and `outside` elsewhere.
static Value replaceOutside(Binder &b, Value y, ArrayRef<Axis> axes, const Modes &modes) {
  for (auto [d, axis] : llvm::enumerate(axes)) {
    SmallVector<bool> inside;
    for (int64_t i = 0; i < axis.out; ++i) {
      double x = sourceOf(axis, modes.coordinates, i).value_or(0);
      inside.push_back(x >= 0 && x <= static_cast<double>(axis.in) - 1);
    }
    if (llvm::all_of(inside, [](bool is) { return is; }))
      continue;
    auto type = RankedTensorType::get({axis.out}, b.builder.getI1Type());
    Value kept = b.broadcast(b.constant(DenseElementsAttr::get(type, inside)), tensorType(y).getShape(),
                             {static_cast<int64_t>(d)});
    y = b.select(kept, y, b.splatLike(y, modes.outside));
  }
  return y;
}

namespace {
/// The axes that the node resizes, and a scale or a size for each.
struct Request {
  SmallVector<int64_t> axes, sizes;
  std::optional<Tensor> scales;
  bool isSized() const { return !scales; }
};
} // namespace

static FailureOr<std::optional<Tensor>> scalesOf(Binder &b) {
  ElementsAttr values = b.required(b.version() < 11 ? 1 : 2);
  if (auto attribute = dyn_cast_or_null<DenseF32ArrayAttr>(b.attr("scales"))) // Upsample 7
    values = DenseElementsAttr::get(RankedTensorType::get({attribute.size()}, b.builder.getF32Type()),
                                    attribute.asArrayRef());
  if (!values || values.getNumElements() == 0)
    return std::optional<Tensor>();
  FailureOr<Tensor> given = elementsOf(b, values, "scales");
  if (failed(given))
    return failure();
  return std::optional<Tensor>(*given);
}

static FailureOr<Request> requestOf(Binder &b) {
  Request request;
  SmallVector<int64_t> all = axisRange(0, b.rank(0));
  request.axes = b.version() >= 18 ? b.intsAttr("axes", all) : all;
  FailureOr<std::optional<Tensor>> scales = scalesOf(b);
  if (failed(scales))
    return failure();
  request.scales = *scales;
  const bool sized = b.version() >= 11 && b.has(3) && tensorType(b.in(3)).getNumElements() > 0;
  if (sized == request.scales.has_value())
    return b.fail() << "expected either constant scales or constant sizes, got " << (sized ? "both" : "neither");
  if (sized) {
    FailureOr<SmallVector<int64_t>> given = b.ints(3, "sizes");
    if (failed(given))
      return failure();
    request.sizes = *given;
  }
  const int64_t count = sized ? static_cast<int64_t>(request.sizes.size()) : request.scales->size();
  if (static_cast<int64_t>(request.axes.size()) != count)
    return b.fail() << "expected " << request.axes.size() << " scales or sizes, got " << count;
  return request;
}

/// Gives all resized axes the scale `common`.
static LogicalResult keepAspectRatio(Binder &b, const Request &request, StringRef policy, double common,
                                     MutableArrayRef<Axis> result) {
  for (int64_t at : request.axes) {
    Axis &axis = result[at < 0 ? at + static_cast<int64_t>(result.size()) : at];
    axis.scale = common;
    axis.length = common * static_cast<double>(axis.in);
    if (axis.length > mostSamples)
      return b.fail() << "expected a result of at most 2^24 samples along an axis, got " << axis.length
                      << " by keep_aspect_ratio_policy = " << policy;
    axis.out = static_cast<int64_t>(std::round(axis.length));
  }
  return success();
}

/// Scales and output extents of all axes.
static FailureOr<SmallVector<Axis>> axesOf(Binder &b) {
  int64_t rank = b.rank(0);
  SmallVector<Axis> result(rank);
  for (auto [axis, extent] : llvm::zip_equal(result, b.shape(0)))
    axis.in = axis.out = extent;
  FailureOr<Request> request = requestOf(b);
  if (failed(request))
    return failure();
  const bool sized = request->isSized();
  StringRef policy = b.stringAttr("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (auto [i, given] : llvm::enumerate(request->axes)) {
    FailureOr<int64_t> at = b.axis(given, rank);
    if (failed(at))
      return failure();
    Axis &axis = result[*at];
    const auto in = static_cast<double>(axis.in), size = sized ? static_cast<double>(request->sizes[i]) : 0;
    axis.scale = sized ? size / in : request->scales->number(i);
    if (!(axis.scale > 0) || axis.scale * in > mostSamples || axis.in < 1)
      return b.fail() << "expected positive scales and sizes, got scale " << axis.scale << " on axis " << *at;
    axis.length = sized ? size : axis.scale * in;
    axis.out = static_cast<int64_t>(std::floor(axis.length));
    common = i == 0 ? axis.scale : policy == "not_larger" ? std::min(common, axis.scale) : std::max(common, axis.scale);
  }
  if (sized && policy != "stretch" && failed(keepAspectRatio(b, *request, policy, common, result)))
    return failure();
  bool crops = b.stringAttr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
  if (crops && failed(readRegion(b, request->axes, result)))
    return failure();
  if (!crops && b.version() >= 11 && b.has(1))
    b.named(1); // the region that tf_crop_and_resize alone reads
  return result;
}

static LogicalResult resize(Binder &b, const Modes &modes) {
  if (failed(b.need(1)))
    return failure();
  if (modes.mode != "nearest" && modes.mode != "linear" && modes.mode != "cubic")
    return b.fail() << "expected mode nearest, linear or cubic, got '" << modes.mode << "'";
  // Integers of up to 8 bits are exact in every float, and nearest keeps all.
  bool isByte = isa<IntegerType>(b.element(0)) && b.element(0).getIntOrFloatBitWidth() <= 8;
  if (!b.isFloat(0) && !isByte)
    return b.fail() << "expected a float tensor, or integers of 8 bits, got " << b.in(0).getType();
  FailureOr<SmallVector<Axis>> axes = axesOf(b);
  if (failed(axes))
    return failure();
  SmallVector<int64_t> numbers, taps, shape;
  SmallVector<Attribute> positions, weights;
  for (auto [i, axis] : llvm::enumerate(*axes)) {
    shape.push_back(axis.out);
    if (axis.in == axis.out && axis.scale == 1 && modes.coordinates != "tf_crop_and_resize")
      continue;
    if (axis.out < 1)
      return b.fail() << "expected a positive output extent on axis " << i << ", got " << axis.out;
    FailureOr<Taps> table = tapsOf(b, axis, modes);
    if (failed(table))
      return failure();
    numbers.push_back(i);
    taps.push_back(table->taps);
    positions.push_back(b.list(table->positions));
    weights.push_back(b.builder.getDenseF64ArrayAttr(table->weights));
  }
  if (numbers.empty())
    return b.done(b.in(0));
  Value x = isByte ? b.cast(b.in(0), b.builder.getF32Type()) : b.in(0);
  auto type = RankedTensorType::get(shape, tensorType(x).getElementType());
  Value y = b.make<ResizeOp>(type, x, b.list(numbers), b.list(taps), b.builder.getArrayAttr(positions),
                             b.builder.getArrayAttr(weights));
  if (modes.coordinates == "tf_crop_and_resize")
    y = replaceOutside(b, y, *axes, modes);
  return b.done(b.cast(y, b.element(0)));
}

static LogicalResult importResize(Binder &b) {
  Modes modes{b.stringAttr("mode", "nearest"),
              b.stringAttr("coordinate_transformation_mode", "half_pixel"),
              b.stringAttr("nearest_mode", "round_prefer_floor"),
              b.floatAttr("cubic_coeff_a", -0.75),
              b.intAttr("exclude_outside", 0) != 0,
              b.intAttr("antialias", 0) != 0,
              b.floatAttr("extrapolation_value", 0)};
  return resize(b, modes);
}

/// Resize 10 and Upsample: asymmetric coordinates; nearest takes the sample below.
static LogicalResult importResize10(Binder &b) {
  return resize(b, Modes{b.stringAttr("mode", "nearest"), "asymmetric", "floor"});
}

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
static LogicalResult importGridSample(Binder &b) {
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
static LogicalResult importAffineGrid(Binder &b) {
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

void mpt::addResizeRules(RuleTable &t) {
  t.on("Upsample", 7, importResize10, {NumericClass::Neutral, Arithmetic::Moves});
  t.on("Resize", 10, importResize10, {NumericClass::Neutral, Arithmetic::Moves});
  t.on("Resize", 11, importResize, {NumericClass::Neutral, Arithmetic::Moves});
  t.on("GridSample", 16, takes(2, importGridSample), {NumericClass::Neutral, Arithmetic::Samples});
  t.on("AffineGrid", 20, takes(2, importAffineGrid), NumericClass::Neutral);
}
