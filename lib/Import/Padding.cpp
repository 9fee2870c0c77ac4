// SPDX-License-Identifier: Apache-2.0
// Padding: constant margins, and the modes that repeat elements of the input.
#include "Padding.h"

#include "mpt/Import/Import.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace mpt;

/// Positions that a gather has one by one.
constexpr int64_t mostPicks = 1 << 24;
/// FP64 holds all integers below.
constexpr double mostExact = 0x1p53;

namespace {
/// Margins of every axis; negative ones crop.
struct Margins {
  SmallVector<int64_t> low, high;
  double value = 0;
  Value filler; // instead of `value`: one of run time, or an integer that FP64 does not hold
};
} // namespace

/// The padding value, as a number where FP64 holds it.
static LogicalResult readFiller(Binder &b, Margins &margins) {
  margins.value = 0;
  if (!b.has(2))
    return success();
  if (failed(b.checkTensor(2)))
    return failure();
  if (tensorType(b.in(2)).getNumElements() != 1 || b.element(2) != b.element(0))
    return b.fail() << "expected one number of the tensor's type as padding value, got " << b.in(2).getType();
  double number = b.given(2) ? *b.number(2, "padding value") : 0;
  bool isExact = b.given(2) && (b.isFloat(2) || std::abs(number) < mostExact);
  if (isExact)
    margins.value = number;
  else
    margins.filler = b.reshape(b.in(2), {});
  return success();
}

/// The axes that pads are given for.
static FailureOr<SmallVector<int64_t>> paddedAxes(Binder &b) {
  if (!b.has(3))
    return axisRange(0, b.rank(0));
  FailureOr<SmallVector<int64_t>> axes = b.ints(3, "axes");
  if (failed(axes))
    return failure();
  for (int64_t &one : *axes) {
    FailureOr<int64_t> axis = b.axis(one, b.rank(0));
    if (failed(axis))
      return failure();
    one = *axis;
  }
  return axes;
}

/// The pads of the node, attributes before opset 11.
static FailureOr<Margins> marginsOf(Binder &b) {
  int64_t rank = b.rank(0);
  SmallVector<int64_t> pads = b.intsAttr("pads"), axes = axisRange(0, rank);
  Margins margins{SmallVector<int64_t>(rank, 0), SmallVector<int64_t>(rank, 0), b.floatAttr("value", 0)};
  if (b.version() >= 11) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "pads"), givenAxes;
    if (failed(given) || failed(readFiller(b, margins)) || failed(givenAxes = paddedAxes(b)))
      return failure();
    pads = *given;
    axes = *givenAxes;
  }
  if (pads.size() != 2 * axes.size())
    return b.fail() << "expected " << 2 * axes.size() << " pads, got " << pads.size();
  SmallVector<int64_t> padded(b.shape(0));
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t low = pads[i], high = pads[axes.size() + i];
    for (int64_t pad : {low, high})
      if (pad < -mostElements || pad > mostElements)
        return b.fail() << "expected pads below 2^40, got [" << pads << "]";
    margins.low[axis] = low;
    margins.high[axis] = high;
    padded[axis] = b.shape(0)[axis] + low + high;
  }
  if (failed(b.checkShape(padded)))
    return failure();
  return margins;
}

/// The element that stands at position `i` of an axis padded in `mode`; fails for an unknown mode.
static FailureOr<int64_t> paddedPosition(Binder &b, StringRef mode, int64_t i, int64_t extent) {
  if (mode == "edge")
    return std::clamp<int64_t>(i, 0, extent - 1);
  if (mode == "wrap")
    return ((i % extent) + extent) % extent;
  if (mode != "reflect")
    return b.fail() << "expected mode constant, reflect, edge or wrap, got '" << mode << "'";
  int64_t period = 2 * (extent - 1), at = ((i % period) + period) % period;
  return at < extent ? at : period - at;
}

/// The modes that pick existing elements.
static LogicalResult padByPicking(Binder &b, StringRef mode, const Margins &margins) {
  Value x = b.in(0);
  for (int64_t axis = 0; axis < b.rank(0); ++axis) {
    int64_t extent = b.shape(0)[axis], low = margins.low[axis], high = margins.high[axis];
    if (low == 0 && high == 0)
      continue;
    if (extent == 0 || (mode == "reflect" && extent == 1))
      return b.fail() << "expected more than " << extent << " elements on axis " << axis << " for mode " << mode;
    if (extent + low + high > mostPicks)
      return b.fail() << "expected fewer than 2^24 elements on axis " << axis << " for mode " << mode << ", got "
                      << extent + low + high;
    SmallVector<int64_t> picks;
    for (int64_t i = -low; i < extent + high; ++i) {
      FailureOr<int64_t> at = paddedPosition(b, mode, i, extent);
      if (failed(at))
        return failure();
      picks.push_back(*at);
    }
    x = b.make<GatherOp>(x, b.indices(picks), axis);
  }
  return b.done(x);
}

LogicalResult mpt::importPad(Binder &b) {
  FailureOr<Margins> margins = marginsOf(b);
  if (failed(margins))
    return failure();
  StringRef mode = b.stringAttr("mode", "constant");
  if (mode != "constant")
    return padByPicking(b, mode, *margins);
  bool isMask = b.element(0).isInteger(1); // core pads numbers
  Value x = isMask ? b.cast(b.in(0), b.builder.getIntegerType(8)) : b.in(0);
  SmallVector<int64_t> interior(b.rank(0), 0);
  auto pad = [&](Value value) {
    return b.make<PadOp>(value, b.list(margins->low), b.list(margins->high), b.list(interior), b.f64(margins->value));
  };
  Value y = pad(x);
  if (Value filler = margins->filler) {
    Type element = tensorType(y).getElementType();
    Value inside = pad(b.splat(tensorType(x).clone(b.builder.getF32Type()), 1));
    y = b.select(b.compare(Predicate::ne, inside, 0.0), y,
                 b.broadcast(b.cast(filler, element), tensorType(y).getShape(), {}));
  }
  return b.done(isMask ? b.cast(y, b.builder.getI1Type()) : y);
}

/// Half of an axis' gain or loss at each end, rounded down at the front.
LogicalResult mpt::importCenterCropPad(Binder &b) {
  FailureOr<SmallVector<int64_t>> wanted = b.ints(1, "shape");
  if (failed(wanted) || failed(b.checkShape(*wanted)))
    return failure();
  int64_t rank = b.rank(0);
  SmallVector<int64_t> axes = b.intsAttr("axes", axisRange(0, rank)), zero(rank, 0), low(zero), high(zero);
  if (axes.size() != wanted->size())
    return b.fail() << "expected " << axes.size() << " extents, got " << wanted->size();
  for (auto [given, extent] : llvm::zip_equal(axes, *wanted)) {
    FailureOr<int64_t> axis = b.axis(given, rank);
    if (failed(axis))
      return failure();
    int64_t more = extent - b.shape(0)[*axis];
    low[*axis] = more / 2;
    high[*axis] = more - more / 2;
  }
  return b.done(b.make<PadOp>(b.in(0), b.list(low), b.list(high), b.list(zero), b.f64(0)));
}
