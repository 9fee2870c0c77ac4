// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

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

void attachPoolGradients(MLIRContext *context) {
  attachGradients<MaxPoolOp, MaxPoolBackwardOp, AvgPoolOp, AvgPoolBackwardOp>(context);
}

} // namespace mpt
