// SPDX-License-Identifier: Apache-2.0
// Export of scatters: elements that meet at an index are combined in FP32 or wider.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

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
  OnnxValue sums = w.nodeWith("ScatterND",
                              {w.node("Expand", {w.scalar(sum, 0.0), w.indices(shape)}),
                               w.reshape(w.indicesOf(op.getIndices()), tuples), moved},
                              1, {{"reduction", StringRef("add")}})[0];
  return w.cast(w.transpose(sums, back), sum, to);
}

/// A scatter that combines elements in FP32 or wider, rounded once.
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

/// Index tuples of a ScatterND, which has no batch_dims: behind the positions in the batch dimensions, the op's own.
OnnxValue wholeTuples(ScatterNDOp op, OnnxWriter &w) {
  int64_t batchDims = op.getBatchDims();
  if (batchDims == 0)
    return w.indicesOf(op.getIndices());
  SmallVector<int64_t> shape(shapeOf(op.getIndices()));
  shape.back() = 1;
  Values parts;
  for (int64_t dim = 0; dim < batchDims; ++dim) {
    SmallVector<int64_t> along(shape.size(), 1);
    along[dim] = shape[dim];
    OnnxValue positions = w.reshape(w.indices(axisRange(0, shape[dim])), along);
    parts.push_back(w.node("Expand", {positions, w.indices(shape)}));
  }
  parts.push_back(w.indicesOf(op.getIndices()));
  return w.node("Concat", parts, {{"axis", int64_t(-1)}});
}

} // namespace

void mpt::addScatterRules(ExportRules &rules) {
  addRule<ScatterAddOp>(rules, [](ScatterAddOp op, OnnxWriter &w) { return Values{exportScatterAdd(op, w)}; });
  addRule<ScatterElementsOp>(rules, [](ScatterElementsOp op, OnnxWriter &w) {
    return Values{exportScatter(op, w, "ScatterElements", w.get(op.getIndices()), {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<ScatterNDOp>(rules, [](ScatterNDOp op, OnnxWriter &w) {
    return Values{exportScatter(op, w, "ScatterND", wholeTuples(op, w), {})};
  });
}
