// SPDX-License-Identifier: Apache-2.0
// Export of the shape family.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Constants of equal elements with more of them than this are one element, repeated.
constexpr int64_t longestFill = 64;

OnnxValue pad(OnnxWriter &w, const OnnxValue &x, ArrayRef<int64_t> low, ArrayRef<int64_t> high,
              const OnnxValue &value) {
  SmallVector<int64_t> pads(low);
  llvm::append_range(pads, high);
  return w.node("Pad", {x, w.indices(pads), value});
}

/// Margins between elements: [.., n, ..] -> [.., n, 1, ..], padded to [.., n, 1 + interior, ..], flattened, tail cut
/// off.
OnnxValue padInterior(OnnxWriter &w, OnnxValue x, SmallVector<int64_t> &shape, int64_t axis, int64_t interior,
                      const OnnxValue &value) {
  SmallVector<int64_t> split(shape), flat(shape);
  split.insert(split.begin() + axis + 1, 1);
  SmallVector<int64_t> low(split.size(), 0), high(split.size(), 0);
  high[axis + 1] = interior;
  x = pad(w, w.reshape(x, split), low, high, value);
  flat[axis] = shape[axis] * (interior + 1);
  shape[axis] = flat[axis] - interior;
  return w.node("Slice", {w.reshape(x, flat), w.indices({0}), w.indices({shape[axis]}), w.indices({axis})});
}

OnnxValue exportPad(PadOp op, OnnxWriter &w) {
  OnnxValue x = w.get(op.getX()),
            value = w.scalar(tensorType(op.getX()).getElementType(), op.getValue().convertToDouble());
  SmallVector<int64_t> shape(shapeOf(op.getX()));
  for (auto [axis, interior] : llvm::enumerate(op.getInterior()))
    if (interior > 0 && shape[axis] > 0)
      x = padInterior(w, x, shape, axis, interior, value);
  return pad(w, x, op.getLow(), op.getHigh(), value);
}

/// A scalar for readers of `type`. Where that ends in an extent of 1, ONNX Runtime takes its elements one by one
/// beside a scalar, but not beside ones.
OnnxValue beside(OnnxWriter &w, const OnnxValue &scalar, RankedTensorType type) {
  bool slow = type.getRank() > 0 && type.getShape().back() == 1;
  return slow ? w.reshape(scalar, SmallVector<int64_t>(type.getRank(), 1)) : scalar;
}

} // namespace

void mpt::addShapeRules(ExportRules &rules) {
  addRule<ConstantOp>(rules, [](ConstantOp op, OnnxWriter &w) {
    RankedTensorType type = tensorType(op.getY());
    auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
    if (!dense || !dense.isSplat() || type.getNumElements() <= longestFill)
      return Values{w.constant(op.getValue(), "constant")};
    OnnxValue number = w.constant(dense.resizeSplat(RankedTensorType::get({}, type.getElementType())), "constant");
    return Values{w.isImplicit(op.getY()) ? beside(w, number, type)
                                          : w.node("Expand", {number, w.indices(type.getShape())})};
  });
  addRule<ReshapeOp>(
      rules, [](ReshapeOp op, OnnxWriter &w) { return Values{w.reshape(w.get(op.getX()), shapeOf(op.getY()))}; });
  addRule<TransposeOp>(
      rules, [](TransposeOp op, OnnxWriter &w) { return Values{w.transpose(w.get(op.getX()), op.getPermutation())}; });
  addRule<BroadcastOp>(rules, [](BroadcastOp op, OnnxWriter &w) {
    SmallVector<int64_t> ones(shapeOf(op.getY()).size(), 1);
    for (auto [i, dim] : llvm::enumerate(op.getDims()))
      ones[dim] = shapeOf(op.getX())[i];
    OnnxValue x = shapeOf(op.getX()) == ArrayRef<int64_t>(ones) ? w.get(op.getX()) : OnnxValue();
    if (w.isImplicit(op.getY()) && shapeOf(op.getX()).empty())
      return Values{beside(w, w.get(op.getX()), tensorType(op.getY()))};
    if (x.empty())
      x = w.reshape(w.get(op.getX()), ones);
    return Values{w.isImplicit(op.getY()) ? x : w.node("Expand", {x, w.indices(shapeOf(op.getY()))})};
  });
  addRule<ConcatOp>(rules, [](ConcatOp op, OnnxWriter &w) {
    Values inputs;
    for (Value input : op.getInputs())
      inputs.push_back(w.get(input));
    return Values{w.node("Concat", inputs, {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<SliceOp>(rules, [](SliceOp op, OnnxWriter &w) {
    SmallVector<int64_t> ends;
    for (auto [start, size, stride] : llvm::zip(op.getStarts(), op.getSizes(), op.getStrides()))
      ends.push_back(size == 0 ? start : start + (size - 1) * stride + 1);
    return Values{w.node("Slice", {w.get(op.getX()), w.indices(op.getStarts()), w.indices(ends),
                                   w.indices(axisRange(0, ends.size())), w.indices(op.getStrides())})};
  });
  addRule<PadOp>(rules, [](PadOp op, OnnxWriter &w) { return Values{exportPad(op, w)}; });
  addRule<ReverseOp>(rules, [](ReverseOp op, OnnxWriter &w) {
    size_t count = op.getAxes().size();
    SmallVector<int64_t> starts(count, -1), ends(count, std::numeric_limits<int64_t>::min()), steps(count, -1);
    return Values{w.node(
        "Slice", {w.get(op.getX()), w.indices(starts), w.indices(ends), w.indices(op.getAxes()), w.indices(steps)})};
  });
  addRule<IotaOp>(rules, [](IotaOp op, OnnxWriter &w) {
    RankedTensorType type = tensorType(op.getY());
    int64_t axis = op.getAxis();
    SmallVector<int64_t> line(type.getRank(), 1);
    line[axis] = type.getDimSize(axis);
    OnnxValue numbers = w.node("Range", {w.integer(0), w.integer(line[axis]), w.integer(1)});
    OnnxValue values = w.cast(numbers, IntegerType::get(op.getContext(), 64), type.getElementType());
    return Values{w.node("Expand", {w.reshape(values, line), w.indices(type.getShape())})};
  });
}
