// SPDX-License-Identifier: Apache-2.0
// Fourier transforms: multiplications by a matrix of waves.
#include "Fourier.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {
/// A discrete Fourier transform as a matrix: rows are samples and columns frequencies (of the inverse, the other way
/// round), each of one real number or a real and an imaginary one.
struct Transform {
  int64_t length = 1, rows = 1, columns = 1, rowParts = 1, columnParts = 2;
  bool inverse = false, halved = false; ///< halved: the rows are those frequencies that a real signal's others mirror

  double at(int64_t row, int64_t rowPart, int64_t column, int64_t columnPart) const;
};
} // namespace

/// Most elements of a transform's matrix.
constexpr int64_t largestTransform = 1 << 22;

double Transform::at(int64_t row, int64_t rowPart, int64_t column, int64_t columnPart) const {
  constexpr double pi = 3.14159265358979323846;
  auto turn = static_cast<double>(row * column % length) / static_cast<double>(length);
  double angle = (inverse ? 2 : -2) * pi * turn, scale = inverse ? 1 / static_cast<double>(length) : 1;
  if (halved && row != 0 && 2 * row != length)
    scale *= 2;
  // (x + i y) e^(i angle), part by part
  double value = rowPart == columnPart ? std::cos(angle) : rowPart == 0 ? std::sin(angle) : -std::sin(angle);
  return value * scale;
}

/// x [..., rows, rowParts] as [..., columns, columnParts].
static FailureOr<Value> transformed(Binder &b, Value x, const Transform &t) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  int64_t height = t.rows * t.rowParts, width = t.columns * t.columnParts;
  if (height * width > largestTransform)
    return b.fail() << "expected a transform of up to " << largestTransform << " coefficients, got " << height * width;
  Type element = wideType(tensorType(x).getElementType());
  SmallVector<Attribute> values;
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j)
      values.push_back(
          b.builder.getFloatAttr(element, t.at(i / t.rowParts, i % t.rowParts, j / t.columnParts, j % t.columnParts)));
  Value matrix = b.constant(DenseElementsAttr::get(RankedTensorType::get({height, width}, element), values));
  int64_t count = ShapedType::getNumElements(ArrayRef(shape).drop_back(2));
  Value y = b.matmul(b.reshape(b.widen(x), {count, height}), matrix);
  shape[shape.size() - 2] = t.columns;
  shape.back() = t.columnParts;
  return b.cast(b.reshape(y, shape), tensorType(x).getElementType());
}

LogicalResult mpt::importDFT(Binder &b) {
  int64_t rank = b.rank(0), parts = b.shape(0).back();
  int64_t at = b.version() < 20 ? b.intAttr("axis", 1) : -2;
  if (b.version() >= 20 && b.has(2)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(2, "axis");
    if (failed(given) || given->size() != 1)
      return failed(given) ? failure() : LogicalResult(b.fail() << "expected one axis, got " << given->size());
    at = given->front();
  }
  FailureOr<int64_t> axis = b.axis(at, rank);
  if (failed(axis))
    return failure();
  bool onesided = b.intAttr("onesided", 0) != 0;
  Transform t;
  t.inverse = b.intAttr("inverse", 0) != 0;
  t.halved = t.inverse && onesided;
  int64_t extent = b.shape(0)[*axis];
  t.length = t.halved ? 2 * (extent - 1) : extent;
  if (b.has(1)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "dft_length");
    if (failed(given) || given->size() != 1)
      return failed(given) ? failure() : LogicalResult(b.fail() << "expected one length, got " << given->size());
    t.length = given->front();
  }
  if (*axis == rank - 1 || (parts != 1 && parts != 2) || t.length < 1 || t.length > largestTransform ||
      (onesided && !t.inverse && parts == 2))
    return b.fail()
           << "expected signals of one or two parts on the last axis, of two for one-sided inverses alone, and a "
              "positive length, got "
           << b.in(0).getType() << ", axis " << *axis << " and length " << t.length;
  t.rows = std::min(extent, t.halved ? t.length / 2 + 1 : t.length);
  t.columns = onesided && !t.inverse ? t.length / 2 + 1 : t.length;
  t.rowParts = parts;
  t.columnParts = t.halved ? 1 : 2;
  // The axis next to the parts; samples behind the length are left out, and missing ones are zeros.
  SmallVector<int64_t> order = otherAxes(rank - 1, {*axis}), back(rank), starts(rank, 0);
  order.append({*axis, rank - 1});
  for (auto [to, from] : llvm::enumerate(order))
    back[from] = static_cast<int64_t>(to);
  Value x = b.transpose(b.in(0), order);
  SmallVector<int64_t> sizes(tensorType(x).getShape());
  sizes[rank - 2] = t.rows;
  if (t.rows != extent)
    x = b.slice(x, starts, sizes);
  FailureOr<Value> y = transformed(b, x, t);
  return failed(y) ? failure() : b.done(b.transpose(*y, back));
}

/// Windows of a signal [B, T] or [B, T, parts], each transformed: [B, windows, frequencies, 2].
LogicalResult mpt::importSTFT(Binder &b) {
  FailureOr<SmallVector<int64_t>> step = b.ints(1, "frame_step"), length = SmallVector<int64_t>();
  if (b.has(3))
    length = b.ints(3, "frame_length");
  else if (b.has(2) && b.rank(2) == 1)
    length = SmallVector<int64_t>(b.shape(2));
  if (failed(step) || failed(length))
    return failure();
  int64_t rank = b.rank(0), time = rank >= 2 ? b.shape(0)[1] : 0, parts = rank == 3 ? b.shape(0)[2] : 1;
  bool onesided = b.intAttr("onesided", 1) != 0;
  if (!b.isFloat(0) || rank < 2 || rank > 3 || step->size() != 1 || step->front() < 1 || length->size() != 1 ||
      length->front() < 1 || length->front() > time || parts > 2 || (onesided && parts == 2) ||
      (b.has(2) && b.shape(2) != ArrayRef<int64_t>(*length)))
    return b.fail()
           << "expected a float signal [B, T] or [B, T, parts], a positive step, and a window or length of up to "
           << time << ", got " << b.in(0).getType();
  Transform t;
  t.length = t.rows = length->front();
  t.columns = onesided ? t.length / 2 + 1 : t.length;
  t.rowParts = parts;
  int64_t frames = (time - t.length) / step->front() + 1;
  if (failed(b.checkShape({b.shape(0)[0], frames, t.length, parts})) || frames * t.length > largestTransform)
    return b.fail() << "expected windows of up to " << largestTransform << " samples, got " << frames << " of "
                    << t.length;
  SmallVector<int64_t> places;
  for (int64_t frame = 0; frame < frames; ++frame)
    for (int64_t i = 0; i < t.length; ++i)
      places.push_back(frame * step->front() + i);
  Value signal = b.reshape(b.in(0), {b.shape(0)[0], time, parts});
  Value windows = b.make<GatherOp>(signal, b.reshape(b.indices(places), {frames, t.length}), 1);
  if (b.has(2))
    windows = b.mul(windows, b.broadcast(b.cast(b.in(2), b.element(0)), tensorType(windows).getShape(), {2}));
  FailureOr<Value> y = transformed(b, windows, t);
  return failed(y) ? failure() : b.done(*y);
}
