// SPDX-License-Identifier: Apache-2.0
// Both sides of a condition that is known at run time alone are computed, apart from one another.
#ifndef MPT_LIB_IMPORT_UNTAKEN_H
#define MPT_LIB_IMPORT_UNTAKEN_H

#include "Binder.h"

namespace mpt {

/// Makes the operations from behind `before` (null: from the first one) to the end of the block count only where the
/// boolean scalar `taken` holds: elsewhere their gradients are zero, also where a derivative is infinite, and states
/// keep their values.
void keepApart(Binder &b, mlir::Operation *before, mlir::Value taken);
/// Of two writes of one state behind `before`, each kept apart on one side of a condition, makes one.
void joinWrites(mlir::Block &block, mlir::Operation *before);

} // namespace mpt

#endif // MPT_LIB_IMPORT_UNTAKEN_H
