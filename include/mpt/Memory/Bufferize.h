// SPDX-License-Identifier: Apache-2.0
// From tensors to buffers: functions of core ops become functions of rt ops on memrefs.
#ifndef MPT_MEMORY_BUFFERIZE_H
#define MPT_MEMORY_BUFFERIZE_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <functional>

namespace mpt::memory {

/// How a kernel is launched: the extent of its outermost, parallel dimension and the smallest chunk worth a thread.
struct LaunchShape {
  int64_t extent;
  int64_t grain;
  int64_t scratchBytes = 0; ///< of a buffer of bytes that follows the outputs among the kernel's arguments
};

/// Builds a private func.func for a fusion on buffers of the given types; `alignments` are the bytes that each buffer's
/// address is known to be a multiple of.
using KernelEmitter = std::function<llvm::FailureOr<LaunchShape>(
    mlir::OpBuilder &moduleBuilder, FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs,
    llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name, llvm::ArrayRef<int64_t> alignments)>;

struct BufferizeOptions {
  /// The processor multiplies BF16 itself, so that convolutions in it need no workspace.
  bool nativeBf16 = false;
  /// Largest alignment in bytes that kernels care about; those that differ in less are not told apart.
  int64_t alignment = 1;
  /// Library calls work on a GPU: convolutions bring their own workspace and want channels-last filters.
  bool device = false;
  /// The device multiplies 8-bit floats where its library allows; else they pass through FP16.
  bool nativeFloat8 = false;
  /// Functions are to carry `mpt.traffic`.
  bool countTraffic = false;
};

/// Rewrites every public function of `module`. Expects train.read/write (unconditional), mpt.constant,
/// library.gemm, convolutions, views (reshape, transpose, slice), concat and fusions; reports anything else at its
/// location.
llvm::LogicalResult bufferize(mlir::ModuleOp module, const KernelEmitter &emitter, const BufferizeOptions &options);

/// True when argument `output` of a kernel may be the very buffer that argument `input` reads: they have one type
/// and the kernel's generator says so (`mpt.in_place`).
bool mayRunInPlace(mlir::func::FuncOp kernel, unsigned input, unsigned output);

} // namespace mpt::memory

#endif // MPT_MEMORY_BUFFERIZE_H
