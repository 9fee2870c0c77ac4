// SPDX-License-Identifier: Apache-2.0
// Gradients of resampling: its adjoint, and the other way round.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

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

void attachResizeGradients(MLIRContext *context) { attachGradients<ResizeOp, ResizeBackwardOp>(context); }

} // namespace mpt
