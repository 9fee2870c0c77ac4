// SPDX-License-Identifier: Apache-2.0
// Gradients of convolution. The three convolution ops are each other's gradients, so transposed convolutions in the
// forward graph need nothing more.
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

void attachConvGradients(MLIRContext *context) {
  attachGradients<ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
}

} // namespace mpt
