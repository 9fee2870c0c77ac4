// SPDX-License-Identifier: Apache-2.0
// Export of pooling and its gradients.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// ONNX counts positions through the whole tensor, core max_pool within a plane.
Values exportMaxPool(MaxPoolOp op, OnnxWriter &w) {
  SmallVector<int64_t> both = bothPads(op.getPadsLow(), op.getPadsHigh());
  Values results = w.nodeWith("MaxPool", {w.get(op.getX())}, 2,
                              {{"kernel_shape", op.getKernel()},
                               {"strides", op.getStrides()},
                               {"dilations", op.getDilations()},
                               {"pads", ArrayRef<int64_t>(both)}});
  Type index = IntegerType::get(op.getContext(), 64);
  OnnxValue plane =
      w.node("Mod", {results[1], w.scalar(index, ShapedType::getNumElements(shapeOf(op.getX()).drop_front(2)))});
  return {results[0], w.cast(plane, index, elementOf(op.getIndices()))};
}

/// Sums where windows overlap are FP32.
OnnxValue exportMaxPoolBackward(MaxPoolBackwardOp op, OnnxWriter &w) {
  ArrayRef<int64_t> x = shapeOf(op.getDx()), y = shapeOf(op.getDy());
  Type wide = wideType(elementOf(op.getDx()));
  int64_t planes = x[0] * x[1], from = ShapedType::getNumElements(y.drop_front(2)),
          to = ShapedType::getNumElements(x.drop_front(2));
  OnnxValue zeros = w.node("Expand", {w.scalar(wide, 0.0), w.indices({planes, to})});
  OnnxValue dy = w.cast(w.get(op.getDy()), elementOf(op.getDy()), wide);
  OnnxValue sums = w.node("ScatterElements",
                          {zeros, w.reshape(w.get(op.getIndices()), {planes, from}), w.reshape(dy, {planes, from})},
                          {{"axis", int64_t(1)}, {"reduction", StringRef("add")}});
  return w.cast(w.reshape(sums, x), wide, elementOf(op.getDx()));
}

OnnxValue exportAvgPool(AvgPoolOp op, OnnxWriter &w) {
  SmallVector<int64_t> both = bothPads(op.getPadsLow(), op.getPadsHigh());
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
  SmallVector<int64_t> both = bothPads(op.getPadsLow(), op.getPadsHigh()), planes{x[0] * x[1], 1}, ones{1, 1},
                       field{1, 1}, rest;
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
  OnnxValue count = w.scalar(type, ShapedType::getNumElements(op.getKernel()));
  if (!op.getCountIncludePad())
    count = w.node("Conv", {w.node("Expand", {w.scalar(type, 1.0), w.indices(field)}), kernel}, window);
  OnnxValue shares = w.node("Div", {w.reshape(w.cast(w.get(op.getDy()), elementOf(op.getDy()), type), planes), count});
  window.emplace_back("output_padding", ArrayRef<int64_t>(rest));
  return w.cast(w.reshape(w.node("ConvTranspose", {shares, kernel}, window), x), type, elementOf(op.getDx()));
}

} // namespace

void mpt::addPoolRules(ExportRules &rules) {
  addRule<MaxPoolOp>(rules, [](MaxPoolOp op, OnnxWriter &w) { return exportMaxPool(op, w); });
  addRule<MaxPoolBackwardOp>(rules,
                             [](MaxPoolBackwardOp op, OnnxWriter &w) { return Values{exportMaxPoolBackward(op, w)}; });
  addRule<AvgPoolOp>(rules, [](AvgPoolOp op, OnnxWriter &w) { return Values{exportAvgPool(op, w)}; });
  addRule<AvgPoolBackwardOp>(rules,
                             [](AvgPoolBackwardOp op, OnnxWriter &w) { return Values{exportAvgPoolBackward(op, w)}; });
}
