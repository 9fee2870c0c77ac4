// SPDX-License-Identifier: Apache-2.0
// The count of rounding casts that precision passes keep on functions.
#ifndef MPT_PRECISION_LOSSYCASTS_H
#define MPT_PRECISION_LOSSYCASTS_H

#include "mlir/IR/Operation.h"

namespace mpt {

/// True for casts between float types that can change a value.
bool isLossyCast(mlir::Operation *op);
/// Adds `count` to the recorded number of rounding casts of the function around `op`.
void addLossyCasts(mlir::Operation *op, int64_t count);

} // namespace mpt

#endif // MPT_PRECISION_LOSSYCASTS_H
