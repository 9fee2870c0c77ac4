// SPDX-License-Identifier: Apache-2.0
// Matrix ops of warps (gpu.subgroup_mma_*), on a processor.
#ifndef MPT_LIB_LOWERING_EMULATION_MATRIXEMULATION_H
#define MPT_LIB_LOWERING_EMULATION_MATRIXEMULATION_H

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mpt {

constexpr int64_t warpLanes = 32;

bool isMatrixOp(mlir::Operation &op);

/// Emits `op` for `thread`: the first lane of a warp does the work of all. Matrices lie in memory that `memoryOf`
/// names, FP32 [warps, rows, columns] row by row whatever the operand; `mapping` has the other operands.
void emulateMatrixOp(mlir::ImplicitLocOpBuilder &b, mlir::Operation &op, mlir::Value thread,
                     const mlir::IRMapping &mapping, llvm::function_ref<mlir::Value(mlir::Value)> memoryOf);

/// Copies the matrix of `thread`'s warp.
void emulateMatrixCopy(mlir::ImplicitLocOpBuilder &b, mlir::Value from, mlir::Value to, mlir::Value thread);

} // namespace mpt

#endif // MPT_LIB_LOWERING_EMULATION_MATRIXEMULATION_H
