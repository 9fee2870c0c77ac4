// SPDX-License-Identifier: Apache-2.0
// Operators that read or write at computed places of an image: GridSample, Col2Im, MaxUnpool.
#include "Binder.h"

#include <functional>
#include <optional>

using namespace mlir;
using namespace mpt;

namespace {
constexpr int64_t mostPlaces = int64_t(1) << 24; ///< of Col2Im: a constant of i64

/// A sample along one axis for every point: its index (i64), its weight (none: 1), whether it is inside (none: it is).
struct Tap {
  Value index, weight, inside;
};

class GridSampler {
public:
  GridSampler(Binder &b, StringRef padding, bool alignCorners) : b(b), padding(padding), alignCorners(alignCorners) {}

  SmallVector<Tap> taps(Value coordinate, int64_t extent, StringRef mode);

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

SmallVector<Tap> GridSampler::taps(Value coordinate, int64_t extent, StringRef mode) {
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
  if (failed(b.need(2)))
    return failure();
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
  SmallVector<SmallVector<Tap>> axes; // from the first spatial axis to the last
  for (int64_t i = 0; i < rank; ++i) {
    Value along = b.slice(coordinates, {0, 0, rank - 1 - i}, {batch, points, 1});
    axes.push_back(sampler.taps(b.reshape(along, {batch, points}), x[i + 2], mode));
  }
  // Channels innermost, so that one place's are read together.
  Value rows = b.transpose(b.reshape(b.in(0), {batch, channels, samples}), {0, 2, 1}), sum;
  std::function<void(int64_t, Value, Value, Value)> visit = [&](int64_t axis, Value place, Value weight, Value inside) {
    if (axis == rank) {
      Value index = b.reshape(place, {batch, points, 1});
      Value read = b.make<GatherNDOp>(rows, index, 1);
      SmallVector<int64_t> shape{batch, points, channels};
      if (weight)
        read = b.mul(read, b.broadcast(b.cast(weight, b.element(0)), shape, {0, 1}));
      if (inside)
        read = b.select(b.broadcast(inside, shape, {0, 1}), read, b.splatLike(read, 0.0));
      sum = sum ? b.add(sum, read) : read;
      return;
    }
    for (const Tap &tap : axes[axis]) {
      Value next = place ? b.add(b.mul(place, static_cast<double>(x[axis + 2])), tap.index) : tap.index;
      auto both = [&](Value a, Value c, auto join) { return a && c ? join(a, c) : a ? a : c; };
      visit(axis + 1, next, both(weight, tap.weight, [&](Value a, Value c) { return b.mul(a, c); }),
            both(inside, tap.inside, [&](Value a, Value c) { return b.make<AndOp>(a, c); }));
    }
  };
  visit(0, {}, {}, {});
  outShape.insert(outShape.begin() + 1, channels);
  return b.done(b.reshape(b.transpose(sum, {0, 2, 1}), outShape));
}

/// x [N, C * block, columns]: overlapping blocks are added up into images [N, C, image...].
static LogicalResult importCol2Im(Binder &b) {
  if (failed(b.need(3)))
    return failure();
  FailureOr<SmallVector<int64_t>> image = b.ints(1, "the image's extents"), block = b.ints(2, "the block's extents");
  if (failed(image) || failed(block))
    return failure();
  size_t rank = image->size();
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  SmallVector<int64_t> dilations = b.intsAttr("dilations", ones), strides = b.intsAttr("strides", ones),
                       pads = b.intsAttr("pads", zeros);
  if (rank < 1 || rank > 3)
    return b.fail() << "expected an image of one to three extents, got [" << *image << "]";
  if (failed(b.checkWindow("extents of the image", *image, rank)) ||
      failed(b.checkWindow("extents of the block", *block, rank)) || failed(b.checkWindow("strides", strides, rank)) ||
      failed(b.checkWindow("dilations", dilations, rank)) || failed(b.checkPads(pads, rank, /*cropping=*/false)))
    return failure();
  SmallVector<int64_t> steps;
  for (size_t i = 0; i < rank; ++i) {
    int64_t room = (*image)[i] + pads[i] + pads[rank + i] - ((*block)[i] - 1) * dilations[i] - 1;
    steps.push_back(room < 0 ? 0 : room / strides[i] + 1);
  }
  if (failed(b.checkShape(*image)) || failed(b.checkShape(*block)) || failed(b.checkShape(steps)))
    return failure();
  auto count = [](ArrayRef<int64_t> extents) { return ShapedType::getNumElements(extents); };
  int64_t taps = count(*block), columns = count(steps), size = count(*image);
  if (b.rank(0) != 3 || !b.isFloat(0) || b.shape(0)[1] % taps != 0 || b.shape(0)[2] != columns || columns == 0)
    return b.fail() << "expected float x [N, a multiple of " << taps << ", " << columns << "], got "
                    << b.in(0).getType();
  SmallVector<int64_t> shape{b.shape(0)[0], b.shape(0)[1] / taps};
  shape.append(image->begin(), image->end());
  if (failed(b.checkShape(shape)) || failed(b.checkShape({taps, columns})))
    return failure();
  if (taps * columns > mostPlaces)
    return b.fail() << "expected up to " << mostPlaces << " places that are added up, got " << taps * columns;
  SmallVector<int64_t> places;
  places.reserve(taps * columns);
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t column = 0; column < columns; ++column) {
      int64_t place = 0, stride = 1, t = tap, c = column;
      for (size_t i = rank; i-- > 0; t /= (*block)[i], c /= steps[i], stride *= (*image)[i]) {
        int64_t at = c % steps[i] * strides[i] + t % (*block)[i] * dilations[i] - pads[i];
        if (at < 0 || at >= (*image)[i]) {
          place = size; // what falls into the padding is added up behind the image
          break;
        }
        place += at * stride;
      }
      places.push_back(place);
    }
  RankedTensorType type = tensorType(b.in(0)).clone({shape[0], shape[1], size + 1});
  Value updates = b.reshape(b.in(0), {shape[0], shape[1], taps * columns});
  Value all = b.make<ScatterAddOp>(type, b.indices(places), updates, b.i64(2));
  return b.done(b.reshape(b.slice(all, {0, 0, 0}, {shape[0], shape[1], size}), shape));
}

/// x [N, C, ...] at places of the flat result, which MaxPool counted; the rest is 0.
static LogicalResult importMaxUnpool(Binder &b) {
  if (failed(b.need(2)))
    return failure();
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

void mpt::addSampleRules(RuleTable &t) {
  t.on("MaxUnpool", 9, importMaxUnpool);
  t.on("GridSample", 16, importGridSample);
  t.on("Col2Im", 18, importCol2Im);
}
