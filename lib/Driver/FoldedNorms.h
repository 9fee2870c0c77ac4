// SPDX-License-Identifier: Apache-2.0
// Norms of parameters that an exporter has computed.
#ifndef MPT_LIB_DRIVER_FOLDEDNORMS_H
#define MPT_LIB_DRIVER_FOLDEDNORMS_H

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// Warns of parameters that train and are divided by numbers that are their own norms: a cosine classifier or weight
/// norm of which the exporter has folded the norm, so that it stays as it was at the start.
void warnFoldedNorms(mlir::ModuleOp module);

} // namespace mpt

#endif // MPT_LIB_DRIVER_FOLDEDNORMS_H
