// SPDX-License-Identifier: Apache-2.0
// Types and verification of convolution, pooling and resampling.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

namespace {
struct Window {
  ArrayRef<int64_t> kernel, strides, dilations, low, high;
};
} // namespace

/// Output extents of sliding `window` over the spatial extents `in`; fails when an attribute has the wrong length or an
/// output would be empty.
static LogicalResult slide(std::optional<Location> loc, ArrayRef<int64_t> in, const Window &window,
                           SmallVectorImpl<int64_t> &out) {
  size_t rank = in.size();
  for (ArrayRef<int64_t> values : {window.kernel, window.strides, window.dilations, window.low, window.high})
    if (values.size() != rank)
      return emitOptionalError(loc, "C3: expected ", rank, " entries in each window attribute, got ", values.size());
  for (size_t i = 0; i < rank; ++i) {
    if (window.kernel[i] < 1 || window.strides[i] < 1 || window.dilations[i] < 1)
      return emitOptionalError(loc, "C3: expected positive kernel, strides and dilations");
    int64_t room = in[i] + window.low[i] + window.high[i] - windowSpan(window.kernel[i], window.dilations[i]);
    if (room < 0)
      return emitOptionalError(loc, "C4: expected a window no larger than the padded input, got kernel ",
                               window.kernel[i], " over extent ", in[i]);
    out.push_back(room / window.strides[i] + 1);
  }
  return success();
}

/// Shape of conv(x, w) for the attributes of any of the three convolution ops.
template <typename Op>
static LogicalResult convShape(std::optional<Location> loc, ArrayRef<int64_t> x, ArrayRef<int64_t> w, Op op,
                               SmallVectorImpl<int64_t> &y) {
  if (x.size() != w.size() || x.size() < 3 || x.size() > 5)
    return emitOptionalError(loc, "C1: expected x and w of one rank from 3 to 5, got ranks ", x.size(), " and ",
                             w.size());
  int64_t groups = op.getGroups();
  if (groups < 1 || x[1] != groups * w[1] || w[0] % groups != 0)
    return emitOptionalError(loc, "C2: expected ", x[1], " channels in ", groups, " groups, got a filter for ", w[1],
                             " channels a group and ", w[0], " outputs");
  y.append({x[0], w[0]});
  Window window{w.drop_front(2), op.getStrides(), op.getDilations(), op.getPadsLow(), op.getPadsHigh()};
  return slide(loc, x.drop_front(2), window, y);
}

MPT_INFER(ConvOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  SmallVector<int64_t> shape;
  if (failed(convShape(loc, x.getShape(), tensorType(adaptor.getW()).getShape(), adaptor, shape)))
    return failure();
  types.push_back(x.clone(shape));
  return success();
}
MPT_SAME_SHAPES(ConvOp)

template <typename Op>
static LogicalResult verifyConvBackward(Op op, RankedTensorType x, RankedTensorType w, RankedTensorType dy) {
  SmallVector<int64_t> shape;
  if (failed(convShape(op.getLoc(), x.getShape(), w.getShape(), op, shape)))
    return failure();
  if (ArrayRef<int64_t>(shape) != dy.getShape())
    return op.emitOpError() << "C1: expected dy of shape [" << shape << "] for x " << x << " and w " << w << ", got "
                            << dy;
  return success();
}
LogicalResult ConvBackwardDataOp::verify() {
  return verifyConvBackward(*this, tensorType(getY()), tensorType(getW()), tensorType(getDy()));
}
LogicalResult ConvBackwardWeightsOp::verify() {
  return verifyConvBackward(*this, tensorType(getX()), tensorType(getY()), tensorType(getDy()));
}

template <typename Adaptor> static FailureOr<RankedTensorType> poolType(std::optional<Location> loc, Adaptor op) {
  RankedTensorType x = tensorType(op.getX());
  if (x.getRank() < 3)
    return emitOptionalError(loc, "expected N, C and spatial dimensions, got ", x);
  SmallVector<int64_t> shape(x.getShape().take_front(2));
  Window window{op.getKernel(), op.getStrides(), op.getDilations(), op.getPadsLow(), op.getPadsHigh()};
  if (failed(slide(loc, x.getShape().drop_front(2), window, shape)))
    return failure();
  return x.clone(shape);
}
MPT_INFER(MaxPoolOp) {
  auto y = poolType(loc, adaptor);
  if (failed(y))
    return failure();
  types.append({*y, y->clone(IntegerType::get(context, 32))});
  return success();
}
MPT_INFER(AvgPoolOp) {
  auto y = poolType(loc, adaptor);
  if (failed(y))
    return failure();
  types.push_back(*y);
  return success();
}

LogicalResult ResizeOp::verify() {
  RankedTensorType x = tensorType(getX()), y = tensorType(getY());
  size_t count = getAxes().size();
  if (x.getRank() != y.getRank() || getTaps().size() != count || getPositions().size() != count ||
      getWeights().size() != count)
    return emitOpError() << "expected one entry of taps, positions and weights an axis, and equal ranks";
  for (auto [i, axis] : llvm::enumerate(getAxes())) {
    auto positions = dyn_cast<DenseI64ArrayAttr>(getPositions()[i]);
    auto weights = dyn_cast<DenseF64ArrayAttr>(getWeights()[i]);
    int64_t want = y.getDimSize(axis) * getTaps()[i];
    if (!positions || !weights || positions.size() != want || weights.size() != want)
      return emitOpError() << "expected " << want << " positions (array<i64>) and weights (array<f64>) for axis "
                           << axis;
    for (int64_t p : positions.asArrayRef())
      if (p < 0 || p >= x.getDimSize(axis))
        return emitOpError() << "expected positions within axis " << axis << ", got " << p;
  }
  return success();
}
