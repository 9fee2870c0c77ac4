// SPDX-License-Identifier: Apache-2.0
// Constant folding during import: the results of shape arithmetic once input shapes are numbers.
#ifndef MPT_IMPORT_FOLD_H
#define MPT_IMPORT_FOLD_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace mpt {

/// The value of `op` when every operand is a constant and the result is worth keeping; null otherwise.
mlir::ElementsAttr foldToConstant(mlir::Operation *op);

} // namespace mpt

#endif // MPT_IMPORT_FOLD_H
