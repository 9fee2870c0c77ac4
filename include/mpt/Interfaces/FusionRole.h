// SPDX-License-Identifier: Apache-2.0
// The role of data movement in fusion; apart from the other interfaces because only fusion uses it.
#ifndef MPT_INTERFACES_FUSIONROLE_H
#define MPT_INTERFACES_FUSIONROLE_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/FusionRole.h.inc"

namespace mpt {

/// Whether `op` costs no pass over memory: memory-bufferize makes strides of it, or its operands write their parts.
bool isViewOp(mlir::Operation *op);
/// Whether `op` is a view of its only operand: the same elements at other strides.
bool isOperandView(mlir::Operation *op);

} // namespace mpt

#endif // MPT_INTERFACES_FUSIONROLE_H
