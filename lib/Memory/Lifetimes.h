// SPDX-License-Identifier: Apache-2.0
// When scratch buffers are alive in a linear function.
#ifndef MPT_MEMORY_LIFETIMES_H
#define MPT_MEMORY_LIFETIMES_H

#include "mpt/Dialect/RT/RTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt::memory {

/// Positions of ops are counted from the start of the block; both ends are inclusive.
struct Lifetime {
  rt::AllocOp alloc;
  int64_t first, last, bytes;
};

/// The op that owns the memory of `memref`, or null for function arguments.
mlir::Value ownerOf(mlir::Value memref);
/// One lifetime for each rt.alloc that is used, in program order.
llvm::SmallVector<Lifetime> lifetimesOf(mlir::func::FuncOp function);

} // namespace mpt::memory

#endif // MPT_MEMORY_LIFETIMES_H
