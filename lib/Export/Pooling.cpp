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

/// Per-plane transposed convolution with ones of dy over each window's number of samples.
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

/// Resampling along an axis is a product with a matrix [to, from], or its transpose for the adjoint.
template <typename Op>
OnnxValue exportResize(Op op, OnnxWriter &w, Value input, Value forwardInput, Value forwardOutput, bool adjoint) {
  Type element = wideType(elementOf(input));
  OnnxValue x = w.cast(w.get(input), elementOf(input), element);
  int64_t rank = shapeOf(input).size();
  for (auto [i, axis] : llvm::enumerate(op.getAxes())) {
    int64_t from = shapeOf(forwardInput)[axis], to = shapeOf(forwardOutput)[axis], taps = op.getTaps()[i];
    ArrayRef<int64_t> positions = cast<DenseI64ArrayAttr>(op.getPositions()[i]).asArrayRef();
    ArrayRef<double> weights = cast<DenseF64ArrayAttr>(op.getWeights()[i]).asArrayRef();
    std::vector<float> matrix(from * to, 0.0f);
    for (int64_t k = 0; k < to * taps; ++k)
      matrix[adjoint ? positions[k] * to + k / taps : (k / taps) * from + positions[k]] +=
          static_cast<float>(weights[k]);
    auto type = RankedTensorType::get(adjoint ? ArrayRef<int64_t>{from, to} : ArrayRef<int64_t>{to, from},
                                      Float32Type::get(op.getContext()));
    OnnxValue table = w.cast(w.initializer(DenseElementsAttr::get(type, ArrayRef<float>(matrix)), "resize"),
                             type.getElementType(), element);
    SmallVector<int64_t> swap = axisRange(0, rank);
    std::swap(swap[axis], swap[rank - 2]);
    if (rank >= 2 && axis == rank - 1) { // x [.., from] times the transposed matrix
      x = w.node("MatMul", {x, w.transpose(table, {1, 0})});
      continue;
    }
    x = w.transpose(w.node("MatMul", {table, w.transpose(x, swap)}), swap);
  }
  return w.cast(x, element, elementOf(op->getResult(0)));
}

} // namespace

void mpt::addPoolingRules(ExportRules &rules) {
  addRule<MaxPoolOp>(rules, [](MaxPoolOp op, OnnxWriter &w) { return exportMaxPool(op, w); });
  addRule<MaxPoolBackwardOp>(rules,
                             [](MaxPoolBackwardOp op, OnnxWriter &w) { return Values{exportMaxPoolBackward(op, w)}; });
  addRule<AvgPoolOp>(rules, [](AvgPoolOp op, OnnxWriter &w) { return Values{exportAvgPool(op, w)}; });
  addRule<AvgPoolBackwardOp>(rules,
                             [](AvgPoolBackwardOp op, OnnxWriter &w) { return Values{exportAvgPoolBackward(op, w)}; });
  addRule<ResizeOp>(rules, [](ResizeOp op, OnnxWriter &w) {
    return Values{exportResize(op, w, op.getX(), op.getX(), op.getY(), /*adjoint=*/false)};
  });
  addRule<ResizeBackwardOp>(rules, [](ResizeBackwardOp op, OnnxWriter &w) {
    return Values{exportResize(op, w, op.getDy(), op.getDx(), op.getDy(), /*adjoint=*/true)};
  });
}
