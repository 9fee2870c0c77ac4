// SPDX-License-Identifier: Apache-2.0
// Export of resampling and its adjoint.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// `x` [.., from, ..] at `positions` along `axis`, times as many weights: exact in FP64, rounded to `type`.
OnnxValue weighted(OnnxWriter &w, OnnxValue x, Type type, ArrayRef<int64_t> positions, ArrayRef<double> weights,
                   int64_t axis, int64_t rank) {
  Arithmetic a(w, w.innerType());
  auto count = static_cast<int64_t>(weights.size());
  SmallVector<int64_t> line(rank, 1);
  line[axis] = count;
  SmallVector<APFloat> numbers;
  for (double weight : weights) {
    bool loses;
    numbers.emplace_back(weight);
    numbers.back().convert(cast<FloatType>(a.type).getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
  }
  auto values = DenseElementsAttr::get(RankedTensorType::get(line, a.type), ArrayRef<APFloat>(numbers));
  OnnxValue picked = w.node("Gather", {x, w.indices(positions)}, {{"axis", axis}});
  return w.cast(a.mul(w.cast(picked, type, a.type), w.constant(values, "resize")), a.type, type);
}

/// Axis by axis, the sum over taps of weighted samples.
OnnxValue exportResize(ResizeOp op, OnnxWriter &w) {
  Type type = wideType(elementOf(op.getX()));
  OnnxValue x = w.cast(w.get(op.getX()), elementOf(op.getX()), type);
  SmallVector<int64_t> shape(shapeOf(op.getX()));
  for (auto [i, axis] : llvm::enumerate(op.getAxes())) {
    ArrayRef<int64_t> positions = cast<DenseI64ArrayAttr>(op.getPositions()[i]).asArrayRef();
    ArrayRef<double> weights = cast<DenseF64ArrayAttr>(op.getWeights()[i]).asArrayRef();
    OnnxValue samples = weighted(w, x, type, positions, weights, axis, shape.size());
    shape[axis] = shapeOf(op.getY())[axis];
    SmallVector<int64_t> split(shape);
    split.insert(split.begin() + axis + 1, op.getTaps()[i]);
    x = w.node("ReduceSum", {w.reshape(samples, split), w.indices({axis + 1})}, {{"keepdims", int64_t(0)}});
  }
  return w.cast(x, type, elementOf(op.getY()));
}

/// The same the other way round: the gradient of each output is added where its samples came from.
OnnxValue exportResizeBackward(ResizeBackwardOp op, OnnxWriter &w) {
  Type type = wideType(elementOf(op.getDy()));
  OnnxValue dy = w.cast(w.get(op.getDy()), elementOf(op.getDy()), type);
  SmallVector<int64_t> shape(shapeOf(op.getDy()));
  for (size_t i = op.getAxes().size(); i-- > 0;) {
    int64_t axis = op.getAxes()[i], taps = op.getTaps()[i];
    ArrayRef<int64_t> positions = cast<DenseI64ArrayAttr>(op.getPositions()[i]).asArrayRef();
    ArrayRef<double> weights = cast<DenseF64ArrayAttr>(op.getWeights()[i]).asArrayRef();
    SmallVector<int64_t> outputs;
    for (size_t j = 0; j < positions.size(); ++j)
      outputs.push_back(static_cast<int64_t>(j) / taps);
    OnnxValue shares = weighted(w, dy, type, outputs, weights, axis, shape.size());
    SmallVector<int64_t> line(shape.size(), 1);
    line[axis] = static_cast<int64_t>(positions.size());
    shape[axis] = line[axis];
    OnnxValue targets = w.node("Expand", {w.reshape(w.indices(positions), line), w.indices(shape)});
    shape[axis] = shapeOf(op.getDx())[axis];
    OnnxValue zeros = w.node("Expand", {w.scalar(type, 0.0), w.indices(shape)});
    dy = w.node("ScatterElements", {zeros, targets, shares}, {{"axis", axis}, {"reduction", StringRef("add")}});
  }
  return w.cast(dy, type, elementOf(op.getDx()));
}

} // namespace

void mpt::addResizeRules(ExportRules &rules) {
  addRule<ResizeOp>(rules, [](ResizeOp op, OnnxWriter &w) { return Values{exportResize(op, w)}; });
  addRule<ResizeBackwardOp>(rules,
                            [](ResizeBackwardOp op, OnnxWriter &w) { return Values{exportResizeBackward(op, w)}; });
}
