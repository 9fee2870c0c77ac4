// SPDX-License-Identifier: Apache-2.0
// Export of the shape family.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Constants of equal elements with more of them than this are one element, repeated.
constexpr int64_t longestFill = 64;

/// A tensor of zeros of `type`.
OnnxValue zeros(OnnxWriter &w, RankedTensorType type) {
  return w.node("Expand", {w.scalar(type.getElementType(), 0.0), w.indices(type.getShape())});
}

OnnxValue pad(OnnxWriter &w, OnnxValue x, ArrayRef<int64_t> low, ArrayRef<int64_t> high, OnnxValue value) {
  SmallVector<int64_t> pads(low);
  llvm::append_range(pads, high);
  return w.node("Pad", {x, w.indices(pads), value});
}

/// Margins between elements: [.., n, ..] -> [.., n, 1, ..], padded to [.., n, 1 + interior, ..], flattened, tail cut
/// off.
OnnxValue padInterior(OnnxWriter &w, OnnxValue x, SmallVector<int64_t> &shape, int64_t axis, int64_t interior,
                      OnnxValue value) {
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

/// Indices in the type that the operators on tuples take.
OnnxValue positions(OnnxWriter &w, Value indices) {
  return w.cast(w.get(indices), elementOf(indices), IntegerType::get(indices.getContext(), 64));
}

/// Sums are FP32 or wider whatever the executor does with narrow types.
Type sumType(Type type) { return isa<FloatType>(type) ? Type(wideType(type)) : type; }

/// Adds slices at their indices along an axis: ScatterND on axis 0 after moving the axis there.
OnnxValue exportScatterAdd(ScatterAddOp op, OnnxWriter &w) {
  RankedTensorType type = tensorType(op.getY());
  int64_t axis = op.getAxis(), rank = type.getRank(), indexRank = tensorType(op.getIndices()).getRank();
  SmallVector<int64_t> front{axis}, shape{type.getDimSize(axis)}, back(rank);
  for (int64_t i : otherAxes(rank, {axis})) {
    front.push_back(i);
    shape.push_back(type.getDimSize(i));
  }
  for (auto [to, from] : llvm::enumerate(front))
    back[from] = to;
  // updates: dimensions before the axis, the indices' dimensions, dimensions after it.
  SmallVector<int64_t> updates = axisRange(axis, axis + indexRank);
  for (int64_t i : otherAxes(rank - 1 + indexRank, updates))
    updates.push_back(i);
  SmallVector<int64_t> tuples(shapeOf(op.getIndices()));
  tuples.push_back(1);
  Type from = tensorType(op.getUpdates()).getElementType(), to = type.getElementType(), sum = sumType(to);
  OnnxValue moved = w.transpose(w.cast(w.get(op.getUpdates()), from, sum), updates);
  OnnxValue sums =
      w.nodeWith("ScatterND",
                 {zeros(w, RankedTensorType::get(shape, sum)), w.reshape(positions(w, op.getIndices()), tuples), moved},
                 1, {{"reduction", StringRef("add")}})[0];
  return w.cast(w.transpose(sums, back), sum, to);
}

/// A scatter that combines what meets in FP32 or wider, rounded once.
template <typename Op>
OnnxValue exportScatter(Op op, OnnxWriter &w, StringRef type, OnnxValue indices,
                        SmallVector<OnnxAttribute> attributes) {
  Type from = elementOf(op.getData()), sum = op.getKind() == ScatterKind::assign ? from : sumType(from);
  StringRef kind = op.getKind() == ScatterKind::assign ? "none" : stringifyScatterKind(op.getKind());
  attributes.emplace_back("reduction", kind);
  OnnxValue y = w.node(type,
                       {w.cast(w.get(op.getData()), from, sum), indices,
                        w.cast(w.get(op.getUpdates()), elementOf(op.getUpdates()), sum)},
                       attributes);
  return w.cast(y, sum, elementOf(op.getY()));
}

} // namespace

void mpt::addShapeRules(ExportRules &rules) {
  addRule<ConstantOp>(rules, [](ConstantOp op, OnnxWriter &w) {
    RankedTensorType type = tensorType(op.getY());
    auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
    if (!dense || !dense.isSplat() || type.getNumElements() <= longestFill)
      return Values{w.constant(op.getValue(), "constant")};
    OnnxValue number = w.constant(dense.resizeSplat(RankedTensorType::get({}, type.getElementType())), "constant");
    return Values{w.isImplicit(op.getY()) ? number : w.node("Expand", {number, w.indices(type.getShape())})};
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
      return Values{w.get(op.getX())};
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
  addRule<GatherOp>(rules, [](GatherOp op, OnnxWriter &w) {
    return Values{w.node("Gather", {w.get(op.getX()), w.get(op.getIndices())}, {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<ScatterAddOp>(rules, [](ScatterAddOp op, OnnxWriter &w) { return Values{exportScatterAdd(op, w)}; });
  addRule<GatherElementsOp>(rules, [](GatherElementsOp op, OnnxWriter &w) {
    return Values{
        w.node("GatherElements", {w.get(op.getX()), w.get(op.getIndices())}, {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<ScatterElementsOp>(rules, [](ScatterElementsOp op, OnnxWriter &w) {
    return Values{exportScatter(op, w, "ScatterElements", w.get(op.getIndices()), {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<GatherNDOp>(rules, [](GatherNDOp op, OnnxWriter &w) {
    return Values{w.node("GatherND", {w.get(op.getX()), positions(w, op.getIndices())},
                         {{"batch_dims", int64_t(op.getBatchDims())}})};
  });
  rules[ScatterNDOp::getOperationName()] = [](Operation *operation, OnnxWriter &w) -> LogicalResult {
    auto op = cast<ScatterNDOp>(operation);
    if (op.getBatchDims() != 0)
      return op.emitOpError() << "has no ONNX form: ScatterND has no batch_dims, got " << op.getBatchDims();
    w.set(op.getY(), exportScatter(op, w, "ScatterND", positions(w, op.getIndices()), {}));
    return success();
  };
}
