// SPDX-License-Identifier: Apache-2.0
// From tensors to buffers: functions of core ops become functions of rt ops on memrefs.
#ifndef MPT_MEMORY_BUFFERIZE_H
#define MPT_MEMORY_BUFFERIZE_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <functional>

namespace mpt::memory {

/// Marks the trailing arguments of a function on buffers that are its results.
inline constexpr llvm::StringLiteral kOutputAttr = "mpt.output";
/// Marks generated kernels among the functions of a module.
inline constexpr llvm::StringLiteral kKernelAttr = "mpt.kernel";
/// On a launch whose kernel reads a constant with infinities: its results may hold some on purpose.
inline constexpr llvm::StringLiteral kInfiniteAttr = "mpt.infinite";

/// On a generated kernel: the names of the ops in it, for profiles.
inline constexpr llvm::StringLiteral kOpsAttr = "mpt.ops";

/// On a generated kernel: numbers of arguments, an input and an output in turn, that may be one buffer.
inline constexpr llvm::StringLiteral kInPlaceAttr = "mpt.in_place";

/// On a generated kernel: how many times it reads the inputs with the most elements, where that is not once.
inline constexpr llvm::StringLiteral kPassesAttr = "mpt.passes";
/// On a kernel: `array<i64: bytes, ...>`, what it moves of every argument at most; -1 where that is the whole.
inline constexpr llvm::StringLiteral kMovedAttr = "mpt.moved";
/// On a kernel: `array<i64: argument, ...>`, inputs that it reads only where its others do not do.
inline constexpr llvm::StringLiteral kGuardedAttr = "mpt.guarded";

/// On a fusion that is no kernel: the flags (mpt-c/abi.h) with which the call of a product makes it. Operands are the
/// product and its bias, if any, or the product and the sum that the activation was of, or for a bias gradient the
/// matrix and the product; results are the activation and the sum before it, if that is kept, the gradient, or the
/// sums.
inline constexpr llvm::StringLiteral kEpilogueAttr = "mpt.epilogue";

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

/// Whether a device multiplies these 8-bit types itself: cuBLASLt wants extents in sixteens, and no E5M2 pair.
bool isNativeFloat8(MatMulOp matmul);

struct BufferizeOptions {
  /// The processor multiplies BF16 itself, so that convolutions in it need no workspace.
  bool nativeBf16 = false;
  /// Largest alignment in bytes that kernels care about; those that differ in less are not told apart.
  int64_t alignment = 1;
  /// Library calls work on a GPU: convolutions bring their own workspace and want channels-last filters.
  bool device = false;
  /// The device multiplies 8-bit floats where its library allows; else they pass through FP16.
  bool nativeFloat8 = false;
  /// Functions are to carry kTrafficAttr (Traffic.h).
  bool countTraffic = false;
};

/// Rewrites every public function of `module`. Expects train.read/write (unconditional), mpt.constant, matmul,
/// convolutions, views (reshape, transpose, slice), concat and fusions; reports anything else at its location.
llvm::LogicalResult bufferize(mlir::ModuleOp module, const KernelEmitter &emitter, const BufferizeOptions &options);

/// True when argument `output` of a kernel may be the very buffer that argument `input` reads: they have one type
/// and the kernel's generator says so (kInPlaceAttr).
bool mayRunInPlace(mlir::func::FuncOp kernel, unsigned input, unsigned output);

} // namespace mpt::memory

#endif // MPT_MEMORY_BUFFERIZE_H
