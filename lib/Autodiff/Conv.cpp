// SPDX-License-Identifier: Apache-2.0
// Gradients of convolution, pooling and resampling. The three convolution ops are each other's gradients, so transposed
// convolutions in the forward graph need nothing more.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

/// An op of the convolution group with the window of `op`.
template <typename Result, typename Op>
static Value convLike(Backward &b, Op op, Type type, Value first, Value second) {
  return b.make<Result>(type, first, second, op.getStrides(), op.getDilations(), op.getPadsLow(), op.getPadsHigh(),
                        op.getGroups(), NumericsAttr());
}

MPT_GRADIENT(ConvOp) {
  Value x = op.getX(), w = op.getW();
  b.give(w, [&] { return convLike<ConvBackwardWeightsOp>(b, op, w.getType(), x, b.dy()); });
  b.give(x, [&] { return convLike<ConvBackwardDataOp>(b, op, x.getType(), b.dy(), w); });
}
MPT_GRADIENT(ConvBackwardDataOp) {
  Value x = op.getDy(), w = op.getW();
  b.give(w, [&] { return convLike<ConvBackwardWeightsOp>(b, op, w.getType(), b.dy(), x); });
  b.give(x, [&] { return convLike<ConvOp>(b, op, x.getType(), b.dy(), w); });
}
MPT_GRADIENT(ConvBackwardWeightsOp) {
  Value x = op.getX(), y = op.getDy();
  b.give(y, [&] { return convLike<ConvOp>(b, op, y.getType(), x, b.dy()); });
  b.give(x, [&] { return convLike<ConvBackwardDataOp>(b, op, x.getType(), y, b.dy()); });
}

MPT_GRADIENT(MaxPoolOp) {
  b.give(op.getX(), [&] {
    return b.make<MaxPoolBackwardOp>(op.getX().getType(), b.dy(), op.getIndices(), op.getKernel(), op.getStrides(),
                                     op.getDilations(), op.getPadsLow(), op.getPadsHigh());
  });
}
MPT_GRADIENT(MaxPoolBackwardOp) {
  // Each output position reads the plane position it was added to.
  b.give(op.getDy(), [&] {
    ArrayRef<int64_t> plane = tensorType(b.dy()).getShape(), window = tensorType(op.getDy()).getShape();
    int64_t from = ShapedType::getNumElements(plane.drop_front(2)),
            to = ShapedType::getNumElements(window.drop_front(2));
    Value flat = b.reshape(b.dy(), {plane[0], plane[1], from});
    Value at = b.reshape(op.getIndices(), {plane[0], plane[1], to});
    return b.reshape(b.make<GatherElementsOp>(flat, at, int64_t(2)), window);
  });
}
MPT_GRADIENT(AvgPoolOp) {
  b.give(op.getX(), [&] {
    return b.make<AvgPoolBackwardOp>(op.getX().getType(), b.dy(), op.getKernel(), op.getStrides(), op.getDilations(),
                                     op.getPadsLow(), op.getPadsHigh(), op.getCountIncludePad());
  });
}
MPT_GRADIENT(AvgPoolBackwardOp) {
  b.give(op.getDy(), [&] {
    return b.make<AvgPoolOp>(b.dy(), op.getKernel(), op.getStrides(), op.getDilations(), op.getPadsLow(),
                             op.getPadsHigh(), op.getCountIncludePad());
  });
}
MPT_GRADIENT(ResizeOp) {
  b.give(op.getX(), [&] {
    return b.make<ResizeBackwardOp>(op.getX().getType(), b.dy(), op.getAxes(), op.getTaps(), op.getPositions(),
                                    op.getWeights());
  });
}
MPT_GRADIENT(ResizeBackwardOp) {
  b.give(op.getDy(), [&] {
    return b.make<ResizeOp>(op.getDy().getType(), b.dy(), op.getAxes(), op.getTaps(), op.getPositions(),
                            op.getWeights());
  });
}

void attachConvGradients(MLIRContext *context) {
  attachGradients<ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp, MaxPoolOp, MaxPoolBackwardOp, AvgPoolOp,
                  AvgPoolBackwardOp, ResizeOp, ResizeBackwardOp>(context);
}

} // namespace mpt
