// SPDX-License-Identifier: Apache-2.0
// Pooling over regions of interest, which are values: RoiAlign reads samples between pixels (Mask R-CNN,
// arXiv:1703.06870), MaxRoiPool whole pixels (Fast R-CNN, arXiv:1504.08083).
#include "Regions.h"
#include "Constants.h"
#include "Sampling.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mpt;

static LogicalResult checkRegions(Binder &b, int64_t columns) {
  if (failed(b.need(2)))
    return failure();
  if (b.rank(0) != 4 || !b.isFloat(0) || b.rank(1) != 2 || b.shape(1)[1] != columns || b.element(1) != b.element(0) ||
      b.shape(1)[0] < 1 || tensorType(b.in(0)).getNumElements() == 0)
    return b.fail() << "expected float x [N, C, H, W] and regions [R, " << columns << "] of its type, got "
                    << b.in(0).getType() << " and " << b.in(1).getType();
  return success();
}

/// Column `i` of the regions in FP32 or wider, [R].
static Value column(Binder &b, int64_t i) {
  int64_t count = b.shape(1)[0];
  return b.reshape(b.widen(b.slice(b.in(1), {0, i}, {count, 1})), {count});
}

namespace {
/// The samples of RoiAlign along one axis: for every region `bins` bins with up to `most` samples each.
struct Axis {
  int64_t extent = 1, bins = 1, most = 1;
  Value position; ///< [R, bins * most]
  Value counts;   ///< samples a bin, as floats [R]
  Value counted;  ///< where a bin has fewer samples than `most`, [R, bins * most]; null where none has
};

class RoiAligner {
public:
  explicit RoiAligner(Binder &b) : b(b) {}

  LogicalResult run();

private:
  LogicalResult readSettings();
  LogicalResult countSamples(Axis &axis, int64_t first);
  void countAtRuntime(Axis &axis, int64_t first);
  std::pair<Value, Value> sizeOf(int64_t first);
  void placeSamples(Axis &axis, int64_t first);
  AxisTaps tapsOf(const Axis &axis);
  Value spread(const Axis &axis, Value x);
  Value pooled(Value samples);

  Binder &b;
  Axis rows, columns;
  int64_t regions = 0, sampling = 0;
  double scale = 1, offset = 0;
  bool isMax = false;
  Value tooLarge; ///< regions with more samples than there are computed, [R]; null where they are known
};
} // namespace

LogicalResult RoiAligner::readSettings() {
  if (failed(checkRegions(b, 4)) || failed(b.need(3)))
    return failure();
  regions = b.shape(1)[0];
  StringRef mode = b.stringAttr("mode", "avg");
  StringRef shift =
      b.stringAttr("coordinate_transformation_mode", b.version() < 16 ? "output_half_pixel" : "half_pixel");
  rows.bins = b.intAttr("output_height", 1);
  columns.bins = b.intAttr("output_width", 1);
  sampling = b.intAttr("sampling_ratio", 0);
  scale = b.floatAttr("spatial_scale", 1);
  if (mode != "avg" && mode != "max")
    return b.fail() << "expected mode avg or max, got '" << mode << "'";
  if (shift != "half_pixel" && shift != "output_half_pixel")
    return b.fail() << "expected coordinate_transformation_mode half_pixel or output_half_pixel, got '" << shift << "'";
  constexpr int64_t most = 1 << 12;
  if (b.shape(2) != ArrayRef<int64_t>{regions} || std::min({rows.bins, columns.bins, sampling + 1}) < 1 ||
      std::max({rows.bins, columns.bins, sampling}) > most)
    return b.fail() << "expected an image for each of " << regions << " regions, and output extents and sampling_ratio "
                    << "up to " << most << ", got " << b.in(2).getType() << ", " << rows.bins << ", " << columns.bins
                    << " and " << sampling;
  isMax = mode == "max";
  offset = shift == "half_pixel" ? 0.5 : 0;
  rows.extent = b.shape(0)[2];
  columns.extent = b.shape(0)[3];
  return success();
}

/// Where each region begins, and how far it reaches, along the axis whose ends are columns `first` and `first` + 2.
std::pair<Value, Value> RoiAligner::sizeOf(int64_t first) {
  Value start = b.add(b.mul(column(b, first), scale), -offset),
        end = b.add(b.mul(column(b, first + 2), scale), -offset);
  Value size = b.sub(end, start);
  return {start, offset == 0 ? b.make<MaxOp>(size, b.splatLike(size, 1)) : size};
}

/// Of regions that are computed at run time, a bin has no more samples than one of a region as large as the image;
/// larger regions are NaN.
void RoiAligner::countAtRuntime(Axis &axis, int64_t first) {
  Value size = sizeOf(first).second;
  Value count = b.make<CeilOp>(b.div(size, b.splatLike(size, static_cast<double>(axis.bins))));
  axis.most = axis.extent / axis.bins + 1;
  Value isTooLarge = b.make<NotOp>(b.compare(Predicate::le, count, static_cast<double>(axis.most)));
  tooLarge = tooLarge ? Value(b.make<OrOp>(tooLarge, isTooLarge)) : isTooLarge;
  axis.counts = b.make<ClampOp>(count, APFloat(0.0), APFloat(static_cast<double>(axis.most)));
}

/// How many samples a bin has. Their number is an extent, so where it depends on the regions they must be known.
LogicalResult RoiAligner::countSamples(Axis &axis, int64_t first) {
  auto type = RankedTensorType::get({regions}, wideType(b.element(1)));
  axis.most = sampling;
  axis.counts = b.splat(type, static_cast<double>(sampling));
  if (sampling > 0)
    return success();
  ElementsAttr known = b.given(1);
  if (!known) {
    countAtRuntime(axis, first);
    return success();
  }
  FailureOr<Tensor> values = elementsOf(b, known, "regions");
  if (failed(values))
    return failure();
  Tensor counts(type);
  axis.most = 1;
  for (int64_t i = 0; i < regions; ++i) {
    auto size = static_cast<float>((values->number(4 * i + first + 2) - values->number(4 * i + first)) * scale);
    if (offset == 0)
      size = std::max(size, 1.0F);
    double count = std::max(std::ceil(size / static_cast<float>(axis.bins)), 0.0F);
    if (!(count <= 1 << 12))
      return b.fail() << "expected regions of at most 2^12 samples a bin, got " << count;
    counts.setNumber(i, count);
    axis.most = std::max(axis.most, static_cast<int64_t>(count));
  }
  axis.counts = b.constant(counts.toAttribute());
  return success();
}

/// Samples lie evenly in their bin, bins evenly in their region.
void RoiAligner::placeSamples(Axis &axis, int64_t first) {
  auto [start, size] = sizeOf(first);
  Value bin = b.mul(size, 1 / static_cast<double>(axis.bins));
  SmallVector<int64_t> shape = {regions, axis.bins, axis.most};
  RankedTensorType type = tensorType(bin).clone(ArrayRef<int64_t>(shape));
  auto along = [&](int64_t dimension) {
    auto grid = RankedTensorType::get(shape, b.builder.getI64Type());
    return b.cast(IotaOp::create(b.builder, b.loc, grid, b.i64(dimension)), type.getElementType());
  };
  auto each = [&](Value x) { return b.broadcast(x, shape, {0}); };
  Value part = b.div(b.add(along(2), 0.5), each(b.make<MaxOp>(axis.counts, b.splatLike(axis.counts, 1))));
  Value position = b.add(each(start), b.mul(each(bin), b.add(along(1), part)));
  SmallVector<int64_t> flat = {regions, axis.bins * axis.most};
  axis.position = b.reshape(position, flat);
  if (sampling == 0)
    axis.counted = b.reshape(b.compare(Predicate::lt, along(2), each(axis.counts)), flat);
}

/// A value of one axis for every point [1, R * rows * columns].
Value RoiAligner::spread(const Axis &axis, Value x) {
  SmallVector<int64_t> shape = {regions, rows.bins * rows.most, columns.bins * columns.most};
  return b.reshape(b.broadcast(x, shape, {0, &axis == &rows ? 1 : 2}), {1, ShapedType::getNumElements(shape)});
}

/// The two pixels around each sample. Samples up to one pixel outside of the image read its edge.
AxisTaps RoiAligner::tapsOf(const Axis &axis) {
  auto size = static_cast<double>(axis.extent);
  Value at = axis.position;
  Value inside = b.make<AndOp>(b.compare(Predicate::ge, at, -1.0), b.compare(Predicate::le, at, size));
  if (axis.counted)
    inside = b.make<AndOp>(inside, axis.counted);
  inside = spread(axis, inside);
  Value clamped = b.make<ClampOp>(at, APFloat(0.0), APFloat(size - 1));
  Value below = b.make<FloorOp>(clamped), part = b.sub(clamped, below);
  Value above = b.make<ClampOp>(b.add(below, 1.0), APFloat(0.0), APFloat(size - 1));
  auto tap = [&](Value index, Value weight) {
    return Tap{spread(axis, b.cast(index, b.builder.getI64Type())), spread(axis, weight), inside};
  };
  return {tap(below, b.add(b.neg(part), 1.0)), tap(above, part)};
}

/// The mean or the largest of each bin's samples [1, points, C].
Value RoiAligner::pooled(Value samples) {
  int64_t channels = b.shape(0)[1];
  SmallVector<int64_t> shape = {regions, rows.bins, rows.most, columns.bins, columns.most, channels};
  Value y = b.reshape(samples, shape);
  if (isMax && sampling == 0) {
    Value counted = b.make<AndOp>(spread(rows, rows.counted), spread(columns, columns.counted));
    counted = b.broadcast(b.reshape(counted, ArrayRef(shape).drop_back()), shape, {0, 1, 2, 3, 4});
    y = b.select(counted, y, b.splatLike(y, -std::numeric_limits<double>::infinity()));
  }
  y = b.reduce(isMax ? ReduceKind::max : ReduceKind::sum, y, {2, 4});
  ArrayRef<int64_t> result = tensorType(y).getShape();
  Value count = b.mul(rows.counts, columns.counts);
  Value divisor = b.make<MaxOp>(count, b.splatLike(count, 1));
  if (!isMax)
    y = b.div(y, b.broadcast(b.cast(divisor, b.element(0)), result, {0}));
  else if (sampling == 0)
    y = b.select(b.broadcast(b.compare(Predicate::gt, count, 0.0), result, {0}), y, b.splatLike(y, 0));
  if (tooLarge)
    y = b.select(b.broadcast(tooLarge, result, {0}), b.splatLike(y, std::numeric_limits<double>::quiet_NaN()), y);
  return b.transpose(y, {0, 3, 1, 2});
}

LogicalResult RoiAligner::run() {
  if (failed(readSettings()) || failed(countSamples(rows, 1)) || failed(countSamples(columns, 0)))
    return failure();
  ArrayRef<int64_t> x = b.shape(0);
  if (failed(b.checkShape({regions, rows.bins, rows.most, columns.bins, columns.most, x[1]})))
    return failure();
  placeSamples(rows, 1);
  placeSamples(columns, 0);
  SmallVector<int64_t> grid = {regions, rows.bins * rows.most, columns.bins * columns.most};
  Value image =
      b.reshape(b.broadcast(b.cast(b.in(2), b.builder.getI64Type()), grid, {0}), {1, ShapedType::getNumElements(grid)});
  Value pixels = b.reshape(rowsOf(b, b.in(0)), {1, x[0] * x[2] * x[3], x[1]});
  // In mode max ONNX takes the largest of the weighted pixels, not of their sums.
  Value samples = readSamples(b, pixels, {x[0], x[2], x[3]}, {{Tap{image, {}, {}}}, tapsOf(rows), tapsOf(columns)},
                              isMax ? Join::max : Join::sum);
  return b.done(pooled(samples));
}

LogicalResult mpt::importRoiAlign(Binder &b) { return RoiAligner(b).run(); }

/// Which pixels of an axis each bin of each region has, [R, bins, extent]: regions and bins reach to whole pixels, both
/// ends included.
static Value pixelsOfBins(Binder &b, int64_t first, int64_t bins, int64_t extent, double scale) {
  int64_t regions = b.shape(1)[0];
  SmallVector<int64_t> shape = {regions, bins, extent};
  // Halves go away from zero, as C's round does.
  auto whole = [&](Value x) { return b.make<FloorOp>(b.add(b.mul(x, scale), 0.5)); };
  Value start = whole(column(b, first)), end = whole(column(b, first + 2));
  Value size = b.add(b.sub(end, start), 1.0);
  size = b.make<MaxOp>(size, b.splatLike(size, 1));
  RankedTensorType type = tensorType(size).clone(ArrayRef<int64_t>(shape));
  auto along = [&](int64_t dimension) {
    auto grid = RankedTensorType::get(shape, b.builder.getI64Type());
    return b.cast(IotaOp::create(b.builder, b.loc, grid, b.i64(dimension)), type.getElementType());
  };
  auto each = [&](Value x) { return b.broadcast(x, shape, {0}); };
  Value bin = each(b.mul(size, 1 / static_cast<double>(bins))), index = along(1), pixel = along(2);
  Value from = b.add(b.make<FloorOp>(b.mul(bin, index)), each(start));
  Value to = b.add(b.make<CeilOp>(b.mul(bin, b.add(index, 1.0))), each(start));
  return b.make<AndOp>(b.compare(Predicate::ge, pixel, from), b.compare(Predicate::lt, pixel, to));
}

LogicalResult mpt::importMaxRoiPool(Binder &b) {
  SmallVector<int64_t> bins = b.intsAttr("pooled_shape");
  double scale = b.floatAttr("spatial_scale", 1);
  if (failed(checkRegions(b, 5)) || failed(b.checkWindow("output extents", bins, 2)))
    return failure();
  ArrayRef<int64_t> x = b.shape(0);
  int64_t regions = b.shape(1)[0];
  SmallVector<int64_t> byRow = {regions, bins[0], x[1], x[2], x[3]}, byColumn = {regions, bins[0], x[1], bins[1], x[3]};
  if (failed(b.checkShape(byRow)) || failed(b.checkShape(byColumn)))
    return failure();
  Value rows = pixelsOfBins(b, 2, bins[0], x[2], scale), columns = pixelsOfBins(b, 1, bins[1], x[3], scale);
  Value image = b.make<GatherOp>(b.in(0), b.cast(column(b, 0), b.builder.getI64Type()), 0);
  auto largest = [&](Value values, Value mask, ArrayRef<int64_t> shape, ArrayRef<int64_t> from, ArrayRef<int64_t> at,
                     int64_t axis) {
    Value all = b.broadcast(values, shape, from);
    Value left =
        b.select(b.broadcast(mask, shape, at), all, b.splatLike(all, -std::numeric_limits<double>::infinity()));
    return b.reduce(ReduceKind::max, left, {axis});
  };
  // Rows first, then columns: [R, bins, C, W], then [R, bins, C, bins].
  Value y = largest(image, rows, byRow, {0, 2, 3, 4}, {0, 1, 3}, 3);
  y = largest(y, columns, byColumn, {0, 1, 2, 4}, {0, 3, 4}, 4);
  // Bins without a pixel are 0.
  auto any = [&](Value mask) {
    return b.compare(Predicate::gt, b.reduce(ReduceKind::max, b.cast(mask, b.builder.getF32Type()), {2}), 0.0);
  };
  ArrayRef<int64_t> shape = tensorType(y).getShape();
  Value filled = b.make<AndOp>(b.broadcast(any(rows), shape, {0, 1}), b.broadcast(any(columns), shape, {0, 3}));
  return b.done(b.transpose(b.select(filled, y, b.splatLike(y, 0)), {0, 2, 1, 3}));
}

namespace {
struct Box {
  double low[2], high[2];
  double area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};
} // namespace

/// Four numbers: two corners, or a centre with width and height.
static Box boxAt(const Tensor &boxes, int64_t at, bool isCentred) {
  Box box{};
  for (int i = 0; i < 2; ++i) {
    double a = boxes.number(4 * at + i), c = boxes.number(4 * at + i + 2);
    box.low[i] = isCentred ? a - c / 2 : std::min(a, c);
    box.high[i] = isCentred ? a + c / 2 : std::max(a, c);
  }
  return box;
}

/// Intersection over union.
static double overlapOf(const Box &a, const Box &c) {
  double shared = 1;
  for (int i = 0; i < 2; ++i)
    shared *= std::max(std::min(a.high[i], c.high[i]) - std::max(a.low[i], c.low[i]), 0.0);
  return shared > 0 ? shared / (a.area() + c.area() - shared) : 0;
}

LogicalResult mpt::importNonMaxSuppression(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  ElementsAttr given[2] = {b.required(0), b.required(1)};
  if (!given[0] || !given[1])
    return b.fail() << "expected constant boxes and scores, as the result's shape depends on them, got values that are "
                       "computed at run time; cut the model before its post-processing [mpt-shape-from-values]";
  if (b.rank(0) != 3 || b.rank(1) != 3 || b.shape(0)[2] != 4 || b.shape(0)[0] != b.shape(1)[0] ||
      b.shape(0)[1] != b.shape(1)[2])
    return b.fail() << "expected boxes [N, B, 4] and scores [N, classes, B], got " << b.in(0).getType() << " and "
                    << b.in(1).getType();
  double settings[3] = {0, 0, -std::numeric_limits<double>::infinity()};
  StringRef names[3] = {"max_output_boxes_per_class", "iou_threshold", "score_threshold"};
  for (unsigned i = 0; i < 3; ++i) {
    FailureOr<double> number = b.has(i + 2) ? b.number(i + 2, names[i]) : FailureOr<double>(settings[i]);
    if (failed(number))
      return failure();
    settings[i] = *number;
  }
  FailureOr<Tensor> boxes = elementsOf(b, given[0], "boxes"), scores = elementsOf(b, given[1], "scores");
  if (failed(boxes) || failed(scores))
    return failure();
  bool isCentred = b.intAttr("center_point_box", 0) != 0;
  int64_t count = b.shape(0)[1], classes = b.shape(1)[1];
  constexpr int64_t mostComparisons = 1 << 24; // a second
  int64_t comparisons = 0;
  SmallVector<int64_t> chosen;
  for (int64_t list = 0; list < b.shape(0)[0] * classes; ++list) {
    int64_t image = list / classes;
    SmallVector<int64_t> order, kept;
    for (int64_t i = 0; i < count; ++i)
      if (scores->number(list * count + i) > settings[2])
        order.push_back(i);
    llvm::stable_sort(order, [&](int64_t i, int64_t j) {
      return scores->number(list * count + i) > scores->number(list * count + j);
    });
    for (int64_t i : order) {
      if (static_cast<double>(kept.size()) >= settings[0])
        break;
      comparisons += static_cast<int64_t>(kept.size());
      if (comparisons > mostComparisons)
        return b.fail() << "expected at most 2^24 comparisons of boxes, got more; bound max_output_boxes_per_class";
      Box box = boxAt(*boxes, image * count + i, isCentred);
      bool isHidden = llvm::any_of(kept, [&](int64_t better) {
        return overlapOf(box, boxAt(*boxes, image * count + better, isCentred)) > settings[1];
      });
      if (isHidden)
        continue;
      kept.push_back(i);
      chosen.append({image, list % classes, i});
    }
  }
  auto type = RankedTensorType::get({static_cast<int64_t>(chosen.size()) / 3, 3}, b.builder.getI64Type());
  return b.done(b.constant(DenseElementsAttr::get(type, ArrayRef<int64_t>(chosen))));
}
