// SPDX-License-Identifier: Apache-2.0
// Gradients of dropout: the same elements are dropped.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(DropoutOp) {
  b.give(op.getX(), [&] { return b.make<DropoutOp>(b.dy(), op.getKey(), op.getRatioAttr(), op.getStreamAttr()); });
}

void attachRandomGradients(MLIRContext *context) { attachGradients<DropoutOp>(context); }

} // namespace mpt
