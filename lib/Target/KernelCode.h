// SPDX-License-Identifier: Apache-2.0
// Kernels from structured MLIR to object code.
#ifndef MPT_TARGET_KERNELCODE_H
#define MPT_TARGET_KERNELCODE_H

#include "Machine.h"
#include "Program.h"

namespace mpt::target {

/// Generates code for all kernels of `program`, in several pieces that compile at the same time. One object a piece.
/// `listing`, when given, receives the optimized LLVM IR.
llvm::LogicalResult compileKernels(mlir::ModuleOp module, const Program &program, const Processor &processor,
                                   unsigned threads, llvm::SmallVectorImpl<Object> &objects, std::string *listing);

} // namespace mpt::target

#endif // MPT_TARGET_KERNELCODE_H
