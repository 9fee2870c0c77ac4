// SPDX-License-Identifier: Apache-2.0
// --batch-invariant in the IR: an entry of the module's manifest.
#ifndef MPT_DIALECT_MPT_ORDEREDSUMS_H
#define MPT_DIALECT_MPT_ORDEREDSUMS_H

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// Asks that no sum of `module` depends on the batch, on threads or on vectors.
void orderSums(mlir::ModuleOp module);
/// True in a module of which that was asked.
bool hasOrderedSums(mlir::Operation *op);

} // namespace mpt

#endif // MPT_DIALECT_MPT_ORDEREDSUMS_H
