// SPDX-License-Identifier: Apache-2.0
// Loops over small boxes of points: windows of pooling, taps of resampling.
#ifndef MPT_LIB_LOWERING_MODELS_BOXES_H
#define MPT_LIB_LOWERING_MODELS_BOXES_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

namespace mpt {

using BoxBody =
    llvm::function_ref<llvm::SmallVector<mlir::Value>(llvm::ArrayRef<IndexExpr> point, mlir::ValueRange carried)>;
/// Calls `body` for every point of `extents`: in line for small boxes, in loops for others. `at` are the indices known
/// so far. Returns the last call's results.
llvm::SmallVector<mlir::Value> overBox(ElementEmitter &e, llvm::ArrayRef<int64_t> extents,
                                       llvm::SmallVector<IndexExpr> at, mlir::ValueRange carried, BoxBody body);

} // namespace mpt

#endif // MPT_LIB_LOWERING_MODELS_BOXES_H
