// SPDX-License-Identifier: Apache-2.0
// Export of convolutions, in the wider of their operand and result types: exact.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

OnnxValue exportConv(ConvOp op, OnnxWriter &w) {
  Type type = widerType(op.getX(), op.getY());
  SmallVector<int64_t> pads = bothPads(op.getPadsLow(), op.getPadsHigh());
  OnnxValue y = w.node("Conv", {w.getAs(op.getX(), type), w.getAs(op.getW(), type)},
                       {{"strides", op.getStrides()},
                        {"dilations", op.getDilations()},
                        {"pads", ArrayRef<int64_t>(pads)},
                        {"group", int64_t(op.getGroups())},
                        {"kernel_shape", shapeOf(op.getW()).drop_front(2)}});
  return w.cast(y, type, elementOf(op.getY()));
}

/// ConvTranspose; what the last windows do not reach of x is output_padding.
OnnxValue exportConvBackwardData(ConvBackwardDataOp op, OnnxWriter &w) {
  Type type = widerType(op.getDy(), op.getY());
  ArrayRef<int64_t> x = shapeOf(op.getY()).drop_front(2), dy = shapeOf(op.getDy()).drop_front(2),
                    kernel = shapeOf(op.getW()).drop_front(2);
  SmallVector<int64_t> pads = bothPads(op.getPadsLow(), op.getPadsHigh()), rest;
  for (size_t i = 0; i < x.size(); ++i)
    rest.push_back(x[i] + op.getPadsLow()[i] + op.getPadsHigh()[i] - (dy[i] - 1) * op.getStrides()[i] -
                   (kernel[i] - 1) * op.getDilations()[i] - 1);
  OnnxValue y = w.node("ConvTranspose", {w.getAs(op.getDy(), type), w.getAs(op.getW(), type)},
                       {{"strides", op.getStrides()},
                        {"dilations", op.getDilations()},
                        {"pads", ArrayRef<int64_t>(pads)},
                        {"group", int64_t(op.getGroups())},
                        {"kernel_shape", kernel},
                        {"output_padding", ArrayRef<int64_t>(rest)}});
  return w.cast(y, type, elementOf(op.getY()));
}

/// dW is a convolution of x with dy, batch and channels swapped: [C/g, g N, S] * [O, N, T] with stride and dilation
/// swapped.
OnnxValue exportConvBackwardWeights(ConvBackwardWeightsOp op, OnnxWriter &w) {
  Type type = widerType(op.getX(), op.getY());
  ArrayRef<int64_t> x = shapeOf(op.getX()), weights = shapeOf(op.getY()), dy = shapeOf(op.getDy());
  int64_t rank = x.size(), groups = op.getGroups();
  SmallVector<int64_t> split{x[0], groups, x[1] / groups}, merged{x[1] / groups, groups * x[0]}, order{2, 1, 0},
      swap{1, 0};
  for (int64_t i = 2; i < rank; ++i) {
    split.push_back(x[i]);
    merged.push_back(x[i]);
    order.push_back(i + 1);
    swap.push_back(i);
  }
  OnnxValue a = w.reshape(w.transpose(w.reshape(w.getAs(op.getX(), type), split), order), merged);
  OnnxValue b = w.transpose(w.getAs(op.getDy(), type), swap);
  SmallVector<int64_t> pads = bothPads(op.getPadsLow(), op.getPadsHigh());
  OnnxValue full = w.node("Conv", {a, b},
                          {{"strides", op.getDilations()},
                           {"dilations", op.getStrides()},
                           {"pads", ArrayRef<int64_t>(pads)},
                           {"group", groups},
                           {"kernel_shape", dy.drop_front(2)}});
  SmallVector<int64_t> starts(rank - 2, 0);
  OnnxValue cut =
      w.node("Slice", {full, w.indices(starts), w.indices(weights.drop_front(2)), w.indices(axisRange(2, rank))});
  return w.cast(w.transpose(cut, swap), type, elementOf(op.getY()));
}

} // namespace

void mpt::addConvRules(ExportRules &rules) {
  addRule<ConvOp>(rules, [](ConvOp op, OnnxWriter &w) { return Values{exportConv(op, w)}; });
  addRule<ConvBackwardDataOp>(
      rules, [](ConvBackwardDataOp op, OnnxWriter &w) { return Values{exportConvBackwardData(op, w)}; });
  addRule<ConvBackwardWeightsOp>(
      rules, [](ConvBackwardWeightsOp op, OnnxWriter &w) { return Values{exportConvBackwardWeights(op, w)}; });
}
