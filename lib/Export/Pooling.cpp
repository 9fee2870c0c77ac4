// SPDX-License-Identifier: Apache-2.0
// Export of pooling and resampling.
#include "Writer.h"

#include <numeric>

using namespace mlir;
using namespace mpt;

namespace {

int64_t product(ArrayRef<int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t(1), std::multiplies<int64_t>());
}

template <typename Op> SmallVector<int64_t> pads(Op op) {
  SmallVector<int64_t> both(op.getPadsLow());
  llvm::append_range(both, op.getPadsHigh());
  return both;
}

/// ONNX counts positions through the whole tensor, core max_pool within a plane.
Values exportMaxPool(MaxPoolOp op, OnnxWriter &w) {
  SmallVector<int64_t> both = pads(op);
  Values results = w.nodeWith("MaxPool", {w.get(op.getX())}, 2,
                              {{"kernel_shape", op.getKernel()},
                               {"strides", op.getStrides()},
                               {"dilations", op.getDilations()},
                               {"pads", ArrayRef<int64_t>(both)}});
  Type index = IntegerType::get(op.getContext(), 64);
  OnnxValue plane = w.node("Mod", {results[1], w.scalar(index, product(shapeOf(op.getX()).drop_front(2)))});
  return {results[0], w.cast(plane, index, elementOf(op.getIndices()))};
}

/// Sums where windows overlap are FP32.
OnnxValue exportMaxPoolBackward(MaxPoolBackwardOp op, OnnxWriter &w) {
  ArrayRef<int64_t> x = shapeOf(op.getDx()), y = shapeOf(op.getDy());
  Type wide = wideType(elementOf(op.getDx()));
  int64_t planes = x[0] * x[1], from = product(y.drop_front(2)), to = product(x.drop_front(2));
  OnnxValue zeros = w.node("Expand", {w.scalar(wide, 0.0), w.indices({planes, to})});
  OnnxValue dy = w.cast(w.get(op.getDy()), elementOf(op.getDy()), wide);
  OnnxValue sums = w.node("ScatterElements",
                          {zeros, w.reshape(w.get(op.getIndices()), {planes, from}), w.reshape(dy, {planes, from})},
                          {{"axis", int64_t(1)}, {"reduction", StringRef("add")}});
  return w.cast(w.reshape(sums, x), wide, elementOf(op.getDx()));
}

OnnxValue exportAvgPool(AvgPoolOp op, OnnxWriter &w) {
  SmallVector<int64_t> both = pads(op);
  return w.node("AveragePool", {w.get(op.getX())},
                {{"kernel_shape", op.getKernel()},
                 {"strides", op.getStrides()},
                 {"dilations", op.getDilations()},
                 {"pads", ArrayRef<int64_t>(both)},
                 {"count_include_pad", int64_t(op.getCountIncludePad())}});
}

/// Per-plane transposed convolution with ones of dy over each window's number of samples: sums ascend over the kernel.
OnnxValue exportAvgPoolBackward(AvgPoolBackwardOp op, OnnxWriter &w) {
  Type type = wideType(elementOf(op.getDy()));
  ArrayRef<int64_t> x = shapeOf(op.getDx()), y = shapeOf(op.getDy());
  SmallVector<int64_t> both = pads(op), planes{x[0] * x[1], 1}, ones{1, 1}, field{1, 1}, rest;
  for (size_t i = 0; i + 2 < x.size(); ++i) {
    planes.push_back(y[i + 2]);
    ones.push_back(op.getKernel()[i]);
    field.push_back(x[i + 2]);
    rest.push_back(x[i + 2] + op.getPadsLow()[i] + op.getPadsHigh()[i] - (y[i + 2] - 1) * op.getStrides()[i] -
                   (op.getKernel()[i] - 1) * op.getDilations()[i] - 1);
  }
  SmallVector<OnnxAttribute> window{{"strides", op.getStrides()},
                                    {"dilations", op.getDilations()},
                                    {"pads", ArrayRef<int64_t>(both)},
                                    {"kernel_shape", op.getKernel()}};
  OnnxValue kernel = w.node("Expand", {w.scalar(type, 1.0), w.indices(ones)});
  OnnxValue count = w.scalar(type, product(op.getKernel()));
  if (!op.getCountIncludePad())
    count = w.node("Conv", {w.node("Expand", {w.scalar(type, 1.0), w.indices(field)}), kernel}, window);
  OnnxValue shares = w.node("Div", {w.reshape(w.cast(w.get(op.getDy()), elementOf(op.getDy()), type), planes), count});
  window.emplace_back("output_padding", ArrayRef<int64_t>(rest));
  return w.cast(w.reshape(w.node("ConvTranspose", {shares, kernel}, window), x), type, elementOf(op.getDx()));
}

/// The products of `x` [.., from, ..] at `positions` along `axis` with as many weights: exact in FP64, rounded to
/// `type`.
OnnxValue weighted(OnnxWriter &w, OnnxValue x, Type type, ArrayRef<int64_t> positions, ArrayRef<double> weights,
                   int64_t axis, int64_t rank) {
  Arithmetic a(w, Float64Type::get(type.getContext()));
  auto count = static_cast<int64_t>(weights.size());
  SmallVector<int64_t> line(rank, 1);
  line[axis] = count;
  auto values = DenseElementsAttr::get(RankedTensorType::get(line, a.type), weights);
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

/// The same the other way round: what each output gave is added where it came from.
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

void mpt::addPoolingRules(ExportRules &rules) {
  addRule<MaxPoolOp>(rules, [](MaxPoolOp op, OnnxWriter &w) { return exportMaxPool(op, w); });
  addRule<MaxPoolBackwardOp>(rules,
                             [](MaxPoolBackwardOp op, OnnxWriter &w) { return Values{exportMaxPoolBackward(op, w)}; });
  addRule<AvgPoolOp>(rules, [](AvgPoolOp op, OnnxWriter &w) { return Values{exportAvgPool(op, w)}; });
  addRule<AvgPoolBackwardOp>(rules,
                             [](AvgPoolBackwardOp op, OnnxWriter &w) { return Values{exportAvgPoolBackward(op, w)}; });
  addRule<ResizeOp>(rules, [](ResizeOp op, OnnxWriter &w) { return Values{exportResize(op, w)}; });
  addRule<ResizeBackwardOp>(rules,
                            [](ResizeBackwardOp op, OnnxWriter &w) { return Values{exportResizeBackward(op, w)}; });
}
