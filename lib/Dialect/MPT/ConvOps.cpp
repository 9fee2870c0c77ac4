// SPDX-License-Identifier: Apache-2.0
// Types and verification of convolution.
#include "TypeInference.h"
#include "Windows.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

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
  SlidingWindow window{w.drop_front(2), op.getStrides(), op.getDilations(), op.getPadsLow(), op.getPadsHigh()};
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
