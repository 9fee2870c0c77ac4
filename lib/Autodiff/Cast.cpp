// SPDX-License-Identifier: Apache-2.0
// Gradients of casts.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

// `give` casts to the operand's type: the gradient of a rounding is the identity.
MPT_GRADIENT(CastOp) { b.give(op.getX(), b.dy()); }

void attachCastGradients(MLIRContext *context) { attachGradients<CastOp>(context); }

} // namespace mpt
