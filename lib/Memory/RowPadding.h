// SPDX-License-Identifier: Apache-2.0
// Rows of matrices that begin at aligned addresses, so that GEMMs move them in wide pieces.
#ifndef MPT_LIB_MEMORY_ROWPADDING_H
#define MPT_LIB_MEMORY_ROWPADDING_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace mpt::memory {

/// `type` with its rows a multiple of `alignment` bytes apart, where it is a row-major matrix, or a stack of them, of
/// more than one column; else as it is.
mlir::MemRefType withAlignedRows(mlir::MemRefType type, int64_t alignment);

/// A GEMM reads or writes `tensor`, or a view of it, and everybody else who reads it takes any strides. `type` is the
/// buffer that it would have.
bool wantsAlignedRows(mlir::Value tensor, mlir::MemRefType type);

} // namespace mpt::memory

#endif // MPT_LIB_MEMORY_ROWPADDING_H
