// SPDX-License-Identifier: Apache-2.0
// Resampling: ONNX's modes become, for each axis, the input positions and weights of every output sample.
#include "Constants.h"
#include "GridSample.h"

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

void mpt::addResizeRules(RuleTable &t) {
  t.on("Upsample", 7, importResize10, {NumericClass::Neutral, Arithmetic::Moves});
  t.on("Resize", 10, importResize10, {NumericClass::Neutral, Arithmetic::Moves});
  t.on("Resize", 11, importResize, {NumericClass::Neutral, Arithmetic::Moves});
  t.on("GridSample", 16, takes(2, importGridSample), {NumericClass::Neutral, Arithmetic::Samples});
  t.on("AffineGrid", 20, takes(2, importAffineGrid), NumericClass::Neutral);
}
