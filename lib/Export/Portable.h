// SPDX-License-Identifier: Apache-2.0
// Arithmetic of portable files without FP64.
#ifndef MPT_LIB_EXPORT_PORTABLE_H
#define MPT_LIB_EXPORT_PORTABLE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Computes FP64 scalars of a decomposed function in FP32, within some units of its last place.
void narrowScalars(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_LIB_EXPORT_PORTABLE_H
