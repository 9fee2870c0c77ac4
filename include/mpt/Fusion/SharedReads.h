// SPDX-License-Identifier: Apache-2.0
// Values that kernels compute once more where they read the operands anyway.
#ifndef MPT_FUSION_SHAREDREADS_H
#define MPT_FUSION_SHAREDREADS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Rewrites `function` (see fusion-share-reads' description). Returns how many values are computed once more.
unsigned shareReads(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_FUSION_SHAREDREADS_H
