// SPDX-License-Identifier: Apache-2.0
// From tensors to buffers: functions of core ops become functions of rt ops on memrefs.
#ifndef MPT_MEMORY_BUFFERIZE_H
#define MPT_MEMORY_BUFFERIZE_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <functional>
#include <limits>

namespace mpt::memory {

/// How a kernel is launched: the extent of its outermost, parallel dimension and the smallest chunk worth a thread.
struct LaunchShape {
  int64_t extent;
  int64_t grain;
  int64_t scratchBytes = 0; ///< of a buffer of bytes that follows the outputs among the kernel's arguments
};

/// Builds a func.func for a fusion on buffers of the given types; `alignments` are the bytes that each buffer's
/// address is known to be a multiple of.
using KernelEmitter = std::function<llvm::FailureOr<LaunchShape>(
    mlir::OpBuilder &moduleBuilder, FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs,
    llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name, llvm::ArrayRef<int64_t> alignments)>;

/// A target's decisions about buffers, and about operands and results of its calls. The defaults are a processor's.
struct BufferizationPolicy {
  /// Largest alignment in bytes that kernels care about; larger ones are not told apart.
  int64_t alignment = 1;

  /// How filters of convolutions lie.
  enum class Filters { RowMajor, ChannelsLast /**< as their data do */ } filters = Filters::RowMajor;
  /// Whose memory convolutions work in: the plan's, unless a processor that multiplies BF16 itself needs none, or the
  /// library's.
  enum class Workspace { Plan, PlanButBf16, Library } workspace = Workspace::Plan;

  /// Which 8-bit operands calls take; the others have been widened before (--fusion-widen-operands).
  enum class Float8 {
    Every,
    Gemms /**< operands that GEMMs multiply as such, depth innermost */,
    None
  } float8 = Float8::Every;
  /// GEMMs write rows one after the other, or columns as well, by multiplying the transposes.
  enum class GemmResults { Rows, RowsOrColumns } gemmResults = GemmResults::Rows;
  /// From so many rows of the other operand on, and from so many bytes, a GEMM multiplies matrices whose rows begin at
  /// multiples of `alignment` so much faster that copies of others pay.
  int64_t rowsWorthAligning = std::numeric_limits<int64_t>::max(), bytesWorthAligning = 0;
  /// GEMMs of 16 bits run on faster kernels where extents along memory are whole pieces of so many bytes: GEMMs with at
  /// least so many operations are computed over rounded extents, unless copies that this takes have more bytes than
  /// their part of the operations.
  int64_t extentBytes = 1, workWorthRounding = std::numeric_limits<int64_t>::max(), workOfCopiedByte = 1;

  /// Recurrences are one call of the runtime, or a loop of GEMMs and kernels.
  enum class Recurrences { Call, Loop } recurrences = Recurrences::Call;
  /// A kernel that treats many tensors alike takes them in their shapes, or as flat memory.
  enum class Bundles { Shaped, Flat } bundles = Bundles::Shaped;
};

/// Attaches the forms on buffers of all ops that have one to the dialects that `registry` loads.
void registerMemoryModels(mlir::DialectRegistry &registry);

/// Rewrites every public function of `module`, one op after the other by `Bufferizable`. Reports ops without that
/// interface at their location. Kernels are declared.
llvm::LogicalResult bufferize(mlir::ModuleOp module, const BufferizationPolicy &policy);

/// Makes loops of declared kernels and tells their launches how far they run. Fails, at its fusion, for one that
/// `emitter` does not make.
llvm::LogicalResult emitKernels(mlir::ModuleOp module, const KernelEmitter &emitter);

/// True when argument `output` of a kernel may be the very buffer that argument `input` reads: they have one type
/// and the kernel's generator says so (`mpt.in_place`).
bool mayRunInPlace(mlir::func::FuncOp kernel, unsigned input, unsigned output);

} // namespace mpt::memory

#endif // MPT_MEMORY_BUFFERIZE_H
