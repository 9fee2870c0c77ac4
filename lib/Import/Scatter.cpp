// SPDX-License-Identifier: Apache-2.0
// Scatters: updates at given places, and the blocks of Col2Im, whose places follow from its window.
#include "Binder.h"

using namespace mlir;
using namespace mpt;

static FailureOr<ScatterKind> scatterKind(Binder &b) {
  StringRef text = b.stringAttr("reduction", "none");
  for (auto [name, kind] : {std::pair<StringRef, ScatterKind>{"none", ScatterKind::assign},
                            {"add", ScatterKind::add},
                            {"mul", ScatterKind::mul},
                            {"min", ScatterKind::min},
                            {"max", ScatterKind::max}})
    if (text == name)
      return kind;
  return b.fail() << "expected reduction none, add, mul, min or max, got '" << text << "'";
}

static LogicalResult importScatterElements(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  FailureOr<ScatterKind> kind = scatterKind(b);
  if (failed(axis) || failed(kind) || failed(b.checkElementIndices(b.shape(0), b.shape(1), *axis)))
    return failure();
  if (b.shape(1) != b.shape(2) || b.element(2) != b.element(0))
    return b.fail() << "expected updates of the indices' shape and the data's type, got " << b.in(2).getType()
                    << " for " << b.in(1).getType() << " and " << b.in(0).getType();
  return b.done(b.make<ScatterElementsOp>(b.in(0), b.in(1), b.in(2), *axis, *kind));
}

static LogicalResult importScatterND(Binder &b) {
  FailureOr<ScatterKind> kind = scatterKind(b);
  if (failed(kind))
    return failure();
  if (b.rank(1) < 1 || b.shape(1).back() > b.rank(0) || b.element(2) != b.element(0))
    return b.fail() << "expected index tuples that fit the data, got " << b.in(1).getType() << " for "
                    << b.in(0).getType();
  SmallVector<int64_t> want(b.shape(1).drop_back());
  want.append(b.shape(0).begin() + b.shape(1).back(), b.shape(0).end());
  if (b.shape(2) != ArrayRef<int64_t>(want))
    return b.fail() << "expected updates of shape [" << want << "], got [" << b.shape(2) << "]";
  return b.done(b.make<ScatterNDOp>(b.in(0), b.in(1), b.in(2), 0, *kind));
}

/// Writes updates into a cache from a position on, which may differ by batch; circular ones begin again behind the end.
static LogicalResult importTensorScatter(Binder &b) {
  int64_t rank = b.rank(0);
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -2), rank);
  if (failed(axis))
    return failure();
  StringRef mode = b.stringAttr("mode", "linear");
  SmallVector<int64_t> want(b.shape(0));
  if (b.rank(1) == rank)
    want[*axis] = b.shape(1)[*axis];
  if (*axis == 0 || b.shape(1) != ArrayRef<int64_t>(want) || want[*axis] > b.shape(0)[*axis] ||
      b.element(1) != b.element(0) || (mode != "linear" && mode != "circular"))
    return b.fail() << "expected updates that fit the cache on every axis but " << *axis
                    << ", behind the first, and mode linear or circular, got " << b.in(1).getType() << ", "
                    << b.in(0).getType() << " and '" << mode << "'";
  Type i64 = b.builder.getI64Type();
  Value place = IotaOp::create(b.builder, b.loc, RankedTensorType::get(want, i64), b.i64(*axis));
  if (b.has(2)) {
    if (b.shape(2) != ArrayRef<int64_t>{want[0]})
      return b.fail() << "expected one position for each of the batch, got " << b.in(2).getType();
    place = b.add(place, b.broadcast(b.cast(b.in(2), i64), want, {0}));
  }
  if (mode == "circular")
    place = b.make<ModOp>(place, b.splatLike(place, static_cast<double>(b.shape(0)[*axis])));
  return b.done(b.make<ScatterElementsOp>(b.in(0), place, b.in(1), *axis, ScatterKind::assign));
}

/// Most places that Col2Im adds up: they are a constant of i64.
static constexpr int64_t mostPlaces = int64_t(1) << 24;

/// x [N, C * block, columns]: overlapping blocks are added up into images [N, C, image...].
static LogicalResult importCol2Im(Binder &b) {
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
          place = size; // elements in the padding are added up behind the image
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

/// Gradients and updates are summed where indices meet.
static NumericClass classOfScatter(onnx::NodeOp node) {
  auto kind = dyn_cast_or_null<StringAttr>(node.getAttrs().get("reduction"));
  bool accumulates = kind && (kind.getValue() == "add" || kind.getValue() == "mul");
  return accumulates ? NumericClass::Reduction : NumericClass::Movement;
}

void mpt::addScatterRules(RuleTable &t) {
  t.on("Scatter", 9, takes(3, importScatterElements), NumericClass::Movement);
  t.on("ScatterElements", 11, takes(3, importScatterElements), classOfScatter);
  t.on("ScatterND", 11, takes(3, importScatterND), classOfScatter);
  t.on("TensorScatter", 24, takes(2, importTensorScatter), NumericClass::Movement);
  t.on("Col2Im", 18, takes(3, importCol2Im), NumericClass::Reduction);
}
