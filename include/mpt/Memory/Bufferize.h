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

/// What a target's libraries and kernels want; the defaults are a processor's.
struct BufferizeOptions {
  /// Largest alignment in bytes that kernels care about; those that differ in less are not told apart.
  int64_t alignment = 1;
  /// The processor multiplies BF16 itself, so that convolutions in it need no workspace.
  bool nativeBf16 = false;
  /// Convolutions get the workspace that they need from the plan; else they bring their own.
  bool plansWorkspace = true;
  /// Filters of convolutions lie channels-last as their data do; else row-major.
  bool channelsLastFilters = false;
  /// Of 8-bit operands the library takes those of GEMMs that it multiplies as such (nativeFloat8), depth innermost. The
  /// others have been widened before (--fusion-widen-operands).
  bool restrictsFloat8 = false;
  bool nativeFloat8 = false;
  /// GEMMs multiply the transposes where the columns of their result lie one after the other.
  bool transposesGemms = false;
  /// GEMMs multiply matrices whose rows begin at multiples of `alignment` so much faster that copies of others pay.
  bool alignsOperands = false;
  /// The runtime computes all steps of a recurrence in a call; else they are a loop of GEMMs and kernels.
  bool wholeRecurrences = true;
  /// One kernel updates several states, as flat memory.
  bool flatUpdates = false;

  /// The wishes of a GPU's libraries and kernels.
  static BufferizeOptions ofGpu() {
    BufferizeOptions options;
    options.plansWorkspace = false;
    options.channelsLastFilters = options.restrictsFloat8 = options.transposesGemms = options.flatUpdates = true;
    options.alignsOperands = true;
    return options;
  }
};

/// Attaches the forms on buffers of all ops that have one to the dialects that `registry` loads.
void registerMemoryModels(mlir::DialectRegistry &registry);

/// Rewrites every public function of `module`, one op after the other by `Bufferizable`. Reports ops without that
/// interface at their location.
llvm::LogicalResult bufferize(mlir::ModuleOp module, const KernelEmitter &emitter, const BufferizeOptions &options);

/// True when argument `output` of a kernel may be the very buffer that argument `input` reads: they have one type
/// and the kernel's generator says so (`mpt.in_place`).
bool mayRunInPlace(mlir::func::FuncOp kernel, unsigned input, unsigned output);

} // namespace mpt::memory

#endif // MPT_MEMORY_BUFFERIZE_H
