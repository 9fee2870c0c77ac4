// SPDX-License-Identifier: Apache-2.0
// A target's interface to the compiler, and the registry of targets. The rest of the compiler asks and knows no target
// by name.
#ifndef MPT_TARGET_TARGET_H
#define MPT_TARGET_TARGET_H

#include "mpt-c/types.h"
#include "mpt/Fusion/KernelCapabilities.h"
#include "mpt/Lowering/GPU/Device.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Support/TensorCores.h"
#include "mpt/Target/Library.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include <memory>
#include <optional>

namespace mpt::target {

/// Calls that the target's runtime library offers beside a plain contraction.
struct LibraryCalls {
  /// Attention and its gradient, without scores in memory; and the depths of heads that they take.
  bool attention = false;
  int64_t attentionDepth = 0, attentionUnit = 1; ///< at most (any if 0), in multiples
  /// GEMMs that compute activations, their gradients and bias gradients on the way, where columns are multiples.
  bool chainedGemms = false;
  int64_t chainedColumns = 1;
  /// Convolutions that leave sums by channel for batch norms and their gradients, where channels are multiples.
  bool channelSums = false;
  int64_t summedChannels = 1;
  bool alphaScales = false;  ///< GEMMs that multiply sums by a constant before rounding
  bool resultScales = false; ///< GEMMs that multiply FP32 sums by an FP32 scalar in memory before they are rounded
  bool biasThroughReshape = false; ///< a GEMM's bias, also where the result is reshaped before the bias is added
  llvm::SmallVector<mpt_dtype> roundedOperands; ///< types that GEMMs round FP32 operands to while they pack
  bool everyOperandType = true;                 ///< contractions take all float types; else 8-bit operands widen first,
  bool float8Gemms = false;                     ///< but for operands of GEMMs, which are multiplied as they are
};

/// Capabilities of a target, which passes get as options.
struct Capabilities {
  const DeviceDescription *device = nullptr; ///< that runs kernels in grids; null: the host does, in loops
  KernelCapabilities fusion;                 ///< of its kernels, and so which ops may share one
  bool orderedSums = true;                   ///< a sum's order depends on nothing but the tensors, in kernels and calls
  llvm::SmallVector<TensorCore> tensorCores; ///< that multiply operands of 8 and 16 bits, one an architecture
  bool wholeRecurrences = false; ///< phase buffers takes recurrences as they are (BufferizationPolicy::recurrences)
  LibraryCalls calls;
};

/// A command-line option of a target: `--name=VALUE`, or `--name` where `value` is empty.
struct TargetFlag {
  llvm::StringRef name, value, text;
};

/// One target as one compilation asks for it.
class Target {
public:
  virtual ~Target();

  /// In --target=, in manifests and in emitted libraries.
  virtual llvm::StringRef name() const = 0;
  /// File name of the runtime library that emitted libraries need.
  virtual llvm::StringRef runtimeLibrary() const = 0;

  virtual llvm::ArrayRef<TargetFlag> flags() const { return {}; }
  /// Takes the value of one of the flags, or returns the expected value, for an error message.
  virtual std::optional<std::string> set(llvm::StringRef flag, llvm::StringRef value);

  virtual Capabilities capabilities() const = 0;
  /// Its policy for buffers in phase buffers, by default a processor's.
  virtual memory::BufferizationPolicy bufferization() const { return {}; }
  /// Makes its kernels (mpt/Target/Kernels.h). With `exactSums`, sums in FP32 are exact up to the last rounding.
  virtual memory::KernelEmitter kernels(bool exactSums) const = 0;
  /// Adds passes of the target's own at the end of a phase (passes/Pipelines.h).
  virtual void addPasses(llvm::StringRef phase, mlir::OpPassManager &passes) const;
  /// Dialects and translations that its passes and emit() need in a context.
  virtual void registerDialects(mlir::DialectRegistry &registry) const;
  /// Writes the library: lib<name>.so (or .a, or <name>.o), <name>.h, <name>.safetensors and <name>.json. Expects the
  /// output of phase memory. All files are complete, or an error at the module says why there are none.
  virtual llvm::LogicalResult emit(mlir::ModuleOp module, const LibraryOptions &options) const = 0;
};

using TargetFactory = std::unique_ptr<Target> (*)();

/// Makes a target known; the first one is the default.
void registerTarget(TargetFactory factory);
/// One of each registered target, in that order, with its flags as they are by default.
llvm::SmallVector<std::unique_ptr<Target>> allTargets();
/// The target of a name (the default one if empty); null when there is none.
std::unique_ptr<Target> createTarget(llvm::StringRef name);
/// As above, with flags such as --mcpu=haswell; null after an error that `emitError` reports.
std::unique_ptr<Target> createTarget(llvm::StringRef name, llvm::ArrayRef<std::string> flags,
                                     llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

} // namespace mpt::target

#endif // MPT_TARGET_TARGET_H
