// SPDX-License-Identifier: Apache-2.0
// Export of convolutions, in the wider of their operand and result types: exact.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Takes the negative entries out of `pads`, which ONNX does not have: they are returned, or nothing where none is.
SmallVector<int64_t> takeNegative(SmallVectorImpl<int64_t> &pads) {
  SmallVector<int64_t> negative;
  if (llvm::none_of(pads, [](int64_t pad) { return pad < 0; }))
    return negative;
  for (int64_t &pad : pads) {
    negative.push_back(std::min<int64_t>(pad, 0));
    pad -= negative.back();
  }
  return negative;
}

/// Pads (or crops) the spatial axes of x by `both`, all low margins, then all high ones.
OnnxValue padSpatial(OnnxWriter &w, OnnxValue x, ArrayRef<int64_t> both) {
  if (both.empty())
    return x;
  SmallVector<int64_t> pads(both);
  pads.insert(pads.begin() + both.size() / 2, 2, 0);
  pads.insert(pads.begin(), 2, 0);
  return w.node("Pad", {x, w.indices(pads)});
}

OnnxValue exportConv(ConvOp op, OnnxWriter &w) {
  Type type = widerType(op.getX(), op.getY());
  SmallVector<int64_t> pads = bothPads(op.getPadsLow(), op.getPadsHigh()), unread = takeNegative(pads);
  OnnxValue y = w.node("Conv", {padSpatial(w, w.getAs(op.getX(), type), unread), w.getAs(op.getW(), type)},
                       {{"strides", op.getStrides()},
                        {"dilations", op.getDilations()},
                        {"pads", ArrayRef<int64_t>(pads)},
                        {"group", int64_t(op.getGroups())},
                        {"kernel_shape", shapeOf(op.getW()).drop_front(2)}});
  return w.cast(y, type, elementOf(op.getY()));
}

/// ConvTranspose; samples of x behind the last windows are output_padding.
OnnxValue exportConvBackwardData(ConvBackwardDataOp op, OnnxWriter &w) {
  Type type = widerType(op.getDy(), op.getY());
  ArrayRef<int64_t> x = shapeOf(op.getY()).drop_front(2), dy = shapeOf(op.getDy()).drop_front(2),
                    kernel = shapeOf(op.getW()).drop_front(2);
  SmallVector<int64_t> pads = bothPads(op.getPadsLow(), op.getPadsHigh()), rest;
  for (size_t i = 0; i < x.size(); ++i)
    rest.push_back(x[i] + op.getPadsLow()[i] + op.getPadsHigh()[i] - (dy[i] - 1) * op.getStrides()[i] -
                   (kernel[i] - 1) * op.getDilations()[i] - 1);
  // Samples that the convolution did not read have no gradient.
  SmallVector<int64_t> unread = takeNegative(pads);
  for (int64_t &margin : unread)
    margin = -margin;
  OnnxValue y = w.node("ConvTranspose", {w.getAs(op.getDy(), type), w.getAs(op.getW(), type)},
                       {{"strides", op.getStrides()},
                        {"dilations", op.getDilations()},
                        {"pads", ArrayRef<int64_t>(pads)},
                        {"group", int64_t(op.getGroups())},
                        {"kernel_shape", kernel},
                        {"output_padding", ArrayRef<int64_t>(rest)}});
  return w.cast(padSpatial(w, y, unread), type, elementOf(op.getY()));
}

/// Kernels with more positions than this leave their gradient as a convolution, whose GEMMs have as many columns.
constexpr int64_t mostWindows = 27;

/// The elements of x [N, C, S] that each kernel position meets: [C * kernel positions, N * output positions].
OnnxValue windowsOf(OnnxWriter &w, OnnxValue x, ConvBackwardWeightsOp op) {
  ArrayRef<int64_t> in = shapeOf(op.getX()), kernel = shapeOf(op.getY()).drop_front(2),
                    out = shapeOf(op.getDy()).drop_front(2);
  int64_t spatial = kernel.size(), windows = ShapedType::getNumElements(kernel);
  SmallVector<int64_t> swap = axisRange(0, in.size()), pads = bothPads(op.getPadsLow(), op.getPadsHigh());
  std::swap(swap[0], swap[1]);
  x = padSpatial(w, w.transpose(x, swap),
                 llvm::all_of(pads, [](int64_t pad) { return pad == 0; }) ? ArrayRef<int64_t>() : pads);
  Values parts;
  for (int64_t window = 0; window < windows; ++window) {
    SmallVector<int64_t> starts(spatial), ends(spatial);
    bool all = true;
    for (int64_t i = spatial, at = window; i-- > 0; at /= kernel[i]) {
      starts[i] = at % kernel[i] * op.getDilations()[i];
      ends[i] = starts[i] + (out[i] - 1) * op.getStrides()[i] + 1;
      all &= out[i] == in[2 + i] + pads[i] + pads[spatial + i];
    }
    OnnxValue part = all ? x
                         : w.node("Slice", {x, w.indices(starts), w.indices(ends), w.indices(axisRange(2, 2 + spatial)),
                                            w.indices(op.getStrides())});
    parts.push_back(w.reshape(part, {in[1], 1, -1}));
  }
  return w.reshape(windows == 1 ? parts.front() : w.node("Concat", parts, {{"axis", int64_t(1)}}),
                   {in[1] * windows, -1});
}

/// dW is a GEMM of dy [O, N * T] and the windows of x, or a convolution of x with dy, batch and channels swapped:
/// [C/g, g N, S] * [O, N, T] with stride and dilation swapped.
OnnxValue exportConvBackwardWeights(ConvBackwardWeightsOp op, OnnxWriter &w) {
  Type type = widerType(op.getX(), op.getY());
  ArrayRef<int64_t> weights = shapeOf(op.getY()), dy = shapeOf(op.getDy());
  SmallVector<int64_t> x(shapeOf(op.getX()));
  int64_t rank = x.size(), groups = op.getGroups();
  SmallVector<int64_t> pads = bothPads(op.getPadsLow(), op.getPadsHigh()), unread = takeNegative(pads);
  for (size_t i = 0; i < unread.size(); ++i)
    x[2 + i % (rank - 2)] += unread[i];
  SmallVector<int64_t> split{x[0], groups, x[1] / groups}, merged{x[1] / groups, groups * x[0]}, order{2, 1, 0},
      swap{1, 0};
  for (int64_t i = 2; i < rank; ++i) {
    split.push_back(x[i]);
    merged.push_back(x[i]);
    order.push_back(i + 1);
    swap.push_back(i);
  }
  if (groups == 1 && ShapedType::getNumElements(weights.drop_front(2)) <= mostWindows) {
    OnnxValue rows = w.reshape(w.transpose(w.getAs(op.getDy(), type), swap), {weights[0], -1});
    OnnxValue y = w.node("Gemm", {rows, windowsOf(w, w.getAs(op.getX(), type), op)}, {{"transB", int64_t(1)}});
    return w.cast(w.reshape(y, weights), type, elementOf(op.getY()));
  }
  OnnxValue read = padSpatial(w, w.getAs(op.getX(), type), unread);
  OnnxValue a = w.reshape(w.transpose(w.reshape(read, split), order), merged);
  OnnxValue b = w.transpose(w.getAs(op.getDy(), type), swap);
  OnnxValue full = w.node("Conv", {a, b},
                          {{"strides", op.getDilations()},
                           {"dilations", op.getStrides()},
                           {"pads", ArrayRef<int64_t>(pads)},
                           {"group", groups},
                           {"kernel_shape", dy.drop_front(2)}});
  SmallVector<int64_t> extents;
  for (int64_t i = 0; i < rank - 2; ++i)
    extents.push_back((x[2 + i] + pads[i] + pads[rank - 2 + i] - (dy[2 + i] - 1) * op.getStrides()[i] - 1) /
                          op.getDilations()[i] +
                      1);
  if (ArrayRef<int64_t>(extents) != weights.drop_front(2))
    full = w.node("Slice", {full, w.indices(SmallVector<int64_t>(rank - 2, 0)), w.indices(weights.drop_front(2)),
                            w.indices(axisRange(2, rank))});
  return w.cast(w.transpose(full, swap), type, elementOf(op.getY()));
}

} // namespace

void mpt::addConvRules(ExportRules &rules) {
  addRule<ConvOp>(rules, [](ConvOp op, OnnxWriter &w) { return Values{exportConv(op, w)}; });
  addRule<ConvBackwardDataOp>(
      rules, [](ConvBackwardDataOp op, OnnxWriter &w) { return Values{exportConvBackwardData(op, w)}; });
  addRule<ConvBackwardWeightsOp>(
      rules, [](ConvBackwardWeightsOp op, OnnxWriter &w) { return Values{exportConvBackwardWeights(op, w)}; });
}
