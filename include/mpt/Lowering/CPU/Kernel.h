// SPDX-License-Identifier: Apache-2.0
// Kernels: a fusion region becomes a function of vectorised loops over buffers.
#ifndef MPT_LOWERING_CPU_KERNEL_H
#define MPT_LOWERING_CPU_KERNEL_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace mpt {

struct KernelInfo {
  mlir::func::FuncOp function;
  int64_t extent; ///< units of parallel work; the function does [begin, end)
  int64_t grain;  ///< units that are worth a task of their own
  /// Pairs of arguments, an input and an output, that may be one buffer: a unit reads all that it needs of the input
  /// before it writes the output, and no other unit reads there.
  llvm::SmallVector<std::pair<unsigned, unsigned>> inPlace;
};

/// Builds `func.func private @name(inputs..., outputs..., %begin: index, %end: index)` at `builder`'s insertion point
/// (in a module) in scf, arith, math, vector and memref. Buffers have static strides and offset 0; an output may be the
/// same buffer as an input where `inPlace` says so, and otherwise does not alias. The
/// work of each unit is independent of the others, and results do not depend on how [0, extent) is divided. Fails with
/// an error at the op that has no loop form.
llvm::FailureOr<KernelInfo> emitKernel(mlir::OpBuilder &builder, FusionOp fusion,
                                       llvm::ArrayRef<mlir::MemRefType> inputs,
                                       llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name,
                                       const KernelTarget &target = KernelTarget::host());

/// Passes (on the module) that take emitted kernels to the LLVM dialect. Memrefs become bare pointers.
void buildKernelToLLVMPipeline(mlir::OpPassManager &manager);

} // namespace mpt

#endif // MPT_LOWERING_CPU_KERNEL_H
