// SPDX-License-Identifier: Apache-2.0
// Resampling: ONNX's modes become, for each axis, the input positions and weights of every output sample.
#include "Binder.h"
#include "Host.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {
/// Resampling of one axis.
struct Axis {
  int64_t in = 1, out = 1;
  double scale = 1, roiStart = 0, roiEnd = 1;
};
struct Modes {
  StringRef mode, coordinates, nearest;
  double cubic = -0.75;
  bool excludeOutside = false, antialias = false;
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
  // The extent before rounding to a whole number of samples.
  double exact = axis.scale * in;
  if (mode == "asymmetric")
    return x / axis.scale;
  if (mode == "half_pixel")
    return (x + 0.5) / axis.scale - 0.5;
  if (mode == "pytorch_half_pixel")
    return axis.out > 1 ? (x + 0.5) / axis.scale - 0.5 : 0;
  if (mode == "align_corners")
    return axis.out > 1 ? x * (in - 1) / (static_cast<double>(axis.out) - 1) : 0;
  if (mode == "half_pixel_symmetric") {
    double adjustment = static_cast<double>(axis.out) / exact, centre = in / 2;
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

static FailureOr<Taps> tapsOf(Binder &b, const Axis &axis, const Modes &modes) {
  Taps result;
  bool nearest = modes.mode == "nearest";
  // Down-sampling with antialias stretches the kernel over the samples that one output covers.
  double stretch = modes.antialias && axis.scale < 1 && !nearest ? 1 / axis.scale : 1;
  double reach = (modes.mode == "linear" ? 1 : 2) * stretch;
  result.taps = nearest ? 1 : static_cast<int64_t>(std::ceil(2 * reach)) + (stretch > 1 ? 1 : 0);
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

/// Scales and output extents of the axes that the node resizes.
static FailureOr<SmallVector<Axis>> axesOf(Binder &b) {
  int64_t rank = b.rank(0);
  SmallVector<Axis> result(rank);
  for (auto [axis, extent] : llvm::zip_equal(result, b.shape(0)))
    axis.in = axis.out = extent;
  unsigned scalesAt = b.version() < 11 ? 1 : 2;
  SmallVector<int64_t> axes = b.version() >= 18 ? b.intsAttr("axes", axisRange(0, rank)) : axisRange(0, rank);
  ElementsAttr scaleValues = b.given(scalesAt);
  if (auto attribute = dyn_cast_or_null<DenseF32ArrayAttr>(b.attr("scales"))) // Upsample 7
    scaleValues = DenseElementsAttr::get(RankedTensorType::get({attribute.size()}, b.builder.getF32Type()),
                                         attribute.asArrayRef());
  std::optional<HostTensor> scales = scaleValues ? readHost(scaleValues) : std::nullopt;
  if (scales && scales->type.getNumElements() == 0)
    scales.reset();
  bool sized = b.version() >= 11 && b.has(3) && tensorType(b.in(3)).getNumElements() > 0;
  if (sized == scales.has_value())
    return b.fail() << "expected either constant scales or constant sizes, got " << (sized ? "both" : "neither");
  SmallVector<int64_t> sizes;
  if (sized) {
    FailureOr<SmallVector<int64_t>> given = b.ints(3, "sizes");
    if (failed(given))
      return failure();
    sizes = *given;
  }
  if (axes.size() != (sized ? sizes.size() : static_cast<size_t>(scales->type.getNumElements())))
    return b.fail() << "expected " << axes.size() << " scales or sizes, got "
                    << (sized ? static_cast<int64_t>(sizes.size()) : scales->type.getNumElements());
  StringRef policy = b.stringAttr("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    FailureOr<int64_t> at = b.axis(axes[i], rank);
    if (failed(at))
      return failure();
    Axis &axis = result[*at];
    axis.scale = sized ? static_cast<double>(sizes[i]) / static_cast<double>(axis.in) : scales->real(i);
    if (!(axis.scale > 0) || axis.scale * static_cast<double>(axis.in) > (1 << 24) || axis.in < 1)
      return b.fail() << "expected positive scales and sizes, got scale " << axis.scale << " on axis " << *at;
    axis.out = sized ? sizes[i] : static_cast<int64_t>(std::floor(axis.scale * static_cast<double>(axis.in)));
    common = i == 0 ? axis.scale : policy == "not_larger" ? std::min(common, axis.scale) : std::max(common, axis.scale);
  }
  if (sized && policy != "stretch")
    for (int64_t at : axes) {
      Axis &axis = result[at < 0 ? at + rank : at];
      axis.scale = common;
      axis.out = static_cast<int64_t>(std::round(common * static_cast<double>(axis.in)));
    }
  return result;
}

static LogicalResult resize(Binder &b, const Modes &modes) {
  if (failed(b.need(1)))
    return failure();
  if (modes.mode != "nearest" && modes.mode != "linear" && modes.mode != "cubic")
    return b.fail() << "expected mode nearest, linear or cubic, got '" << modes.mode << "'";
  if (!b.isFloat(0))
    return b.fail() << "expected a float tensor, got " << b.in(0).getType();
  FailureOr<SmallVector<Axis>> axes = axesOf(b);
  if (failed(axes))
    return failure();
  SmallVector<int64_t> numbers, taps, shape;
  SmallVector<Attribute> positions, weights;
  for (auto [i, axis] : llvm::enumerate(*axes)) {
    shape.push_back(axis.out);
    if (axis.in == axis.out && axis.scale == 1)
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
  auto type = RankedTensorType::get(shape, b.element(0));
  return b.done(b.make<ResizeOp>(type, b.in(0), b.list(numbers), b.list(taps), b.builder.getArrayAttr(positions),
                                 b.builder.getArrayAttr(weights)));
}

static LogicalResult importResize(Binder &b) {
  Modes modes{b.stringAttr("mode", "nearest"),
              b.stringAttr("coordinate_transformation_mode", "half_pixel"),
              b.stringAttr("nearest_mode", "round_prefer_floor"),
              b.floatAttr("cubic_coeff_a", -0.75),
              b.intAttr("exclude_outside", 0) != 0,
              b.intAttr("antialias", 0) != 0};
  return resize(b, modes);
}

/// Resize 10 and Upsample: asymmetric coordinates; nearest takes the sample below.
static LogicalResult importResize10(Binder &b) {
  return resize(b, Modes{b.stringAttr("mode", "nearest"), "asymmetric", "floor"});
}

void mpt::addResizeRules(RuleTable &t) {
  t.on("Upsample", 7, importResize10);
  t.on("Resize", 10, importResize10);
  t.on("Resize", 11, importResize);
}
