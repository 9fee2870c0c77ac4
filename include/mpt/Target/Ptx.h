// SPDX-License-Identifier: Apache-2.0
// From GPU kernels to PTX, the virtual instructions that NVIDIA's driver and assembler take.
#ifndef MPT_TARGET_PTX_H
#define MPT_TARGET_PTX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include <optional>
#include <string>

namespace mpt::cuda {

/// PTX text of `kernels`, a module of the functions that emitGpuKernel made and the memref.globals that they use, which
/// it consumes: one `.visible .entry` a function, whose parameters are bare 64-bit addresses in order. `arch` is sm_80
/// or newer. Mathematical functions are in line: neither libdevice nor any other file is read. Fails with an error at
/// the module (unknown architecture) or at the op that has no instructions.
llvm::FailureOr<std::string> compileToPtx(mlir::ModuleOp kernels, llvm::StringRef arch);

/// The number of an architecture such as sm_90; of sm_90a, whose code runs on no other, 90. Null for other names.
std::optional<int64_t> numberOfArch(llvm::StringRef arch);

/// Dialects and translations that compileToPtx needs in a context.
void registerPtxDialects(mlir::DialectRegistry &registry);

} // namespace mpt::cuda

#endif // MPT_TARGET_PTX_H
