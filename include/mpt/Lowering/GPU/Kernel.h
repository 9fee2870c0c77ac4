// SPDX-License-Identifier: Apache-2.0
// GPU kernels: a fusion region becomes one or more functions of one thread each, with the grid they are launched on.
#ifndef MPT_LOWERING_GPU_KERNEL_H
#define MPT_LOWERING_GPU_KERNEL_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/Emission/KernelTarget.h"
#include "mpt/Lowering/GPU/Device.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <array>

namespace mpt {

struct GpuLaunch {
  mlir::func::FuncOp function;
  std::array<int64_t, 3> grid, block;
  int64_t sharedBytes; ///< static: declared by the function itself, nothing to pass at launch
};

/// Launches follow each other on one stream; each sees the writes of earlier ones. All of them take the same arguments:
/// inputs, outputs and, when scratchBytes > 0, one `memref<scratchBytes x i8>` of no particular content.
struct GpuKernelInfo {
  llvm::SmallVector<GpuLaunch, 2> launches;
  int64_t scratchBytes = 0;
};

/// Builds `func.func private @name(inputs..., outputs..., scratch?)` (further launches: @name_1, @name_2, ...) at
/// `builder`'s insertion point (in a module) in scf, arith, math, vector, memref and gpu (thread_id, block_id, barrier,
/// shuffle); shared memory is a memref.global of memory space 3. Buffers have static strides and offset 0.
///
/// `alignments` are the bytes that each buffer's address is known to be a multiple of (inputs, then outputs); empty:
/// the widest access for all. It limits the width of accesses, never the result. Sums have a fixed order: results do
/// not change from run to run. Two outputs never share memory; an output may be the buffer of an input only as
/// `mpt.in_place` says. Fails with an error at the op that has no loop form.
llvm::FailureOr<GpuKernelInfo> emitGpuKernel(mlir::OpBuilder &builder, FusionOp fusion,
                                             llvm::ArrayRef<mlir::MemRefType> inputs,
                                             llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name,
                                             const DeviceDescription &device, llvm::ArrayRef<int64_t> alignments = {});

} // namespace mpt

#endif // MPT_LOWERING_GPU_KERNEL_H
