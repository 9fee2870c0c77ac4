// SPDX-License-Identifier: Apache-2.0
// GPU kernels emulated on the processor that compiles, for tests of schedules.
#ifndef MPT_LOWERING_EMULATION_EMULATION_H
#define MPT_LOWERING_EMULATION_EMULATION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Replaces the functions of a kernel's launches by `func.func private @name(inputs..., outputs..., scratch?, begin:
/// index, end: index)`, which runs all blocks and threads of all launches in loops on this processor: barriers and
/// exchanges between threads split the thread's code into stretches that all threads of a block run before the next
/// begins. For tests; work is one unit, [0, 1).
llvm::FailureOr<mlir::func::FuncOp> emulateGpuKernel(mlir::OpBuilder &builder,
                                                     llvm::ArrayRef<mlir::func::FuncOp> launches, llvm::StringRef name);

} // namespace mpt

#endif // MPT_LOWERING_EMULATION_EMULATION_H
