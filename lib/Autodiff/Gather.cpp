// SPDX-License-Identifier: Apache-2.0
// Gradients of gathers: scatters that add.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(GatherOp) {
  b.give(op.getX(), [&] { return b.make<ScatterAddOp>(op.getX().getType(), op.getIndices(), b.dy(), op.getAxis()); });
}
MPT_GRADIENT(GatherElementsOp) {
  b.give(op.getX(), [&] {
    return b.make<ScatterElementsOp>(b.splatLike(op.getX(), 0.0), op.getIndices(), b.dy(), op.getAxis(),
                                     ScatterKind::add);
  });
}
MPT_GRADIENT(GatherNDOp) {
  b.give(op.getX(), [&] {
    return b.make<ScatterNDOp>(b.splatLike(op.getX(), 0.0), op.getIndices(), b.dy(), op.getBatchDims(),
                               ScatterKind::add);
  });
}

void attachGatherGradients(MLIRContext *context) { attachGradients<GatherOp, GatherElementsOp, GatherNDOp>(context); }

} // namespace mpt
