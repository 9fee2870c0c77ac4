// SPDX-License-Identifier: Apache-2.0
// What a target tells the compiler, and the registry of targets. The rest of the compiler asks and knows no target by
// name.
#ifndef MPT_TARGET_TARGET_H
#define MPT_TARGET_TARGET_H

#include "mpt-c/types.h"
#include "mpt/Fusion/KernelCapabilities.h"
#include "mpt/Target/Library.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include <memory>
#include <optional>

namespace mpt::target {

/// A tensor operand of a contraction: an op's family, and the number of the operand.
enum class Contraction { MatMul, Conv };
struct NativeType {
  Contraction op;
  unsigned operand;
  mpt_dtype type;
};

/// How a fusion becomes code.
enum class KernelModel {
  VectorLoops, ///< loops over vectors, shared out among the host's threads by ranges of the outermost dimension
  ThreadGrid ///< grids of thread blocks on a device, which share sums out themselves and pay for every pass over memory
};

/// Calls that the target's runtime library offers beside a plain contraction.
struct LibraryCalls {
  bool attention = false;    ///< attention and its gradient, without scores in memory
  bool chainedGemms = false; ///< GEMMs that compute activations, their gradients and bias gradients on the way
  bool recurrences = false;  ///< all steps of a recurrent layer, and their gradients
  bool channelSums = false;  ///< convolutions that leave sums by channel for batch norms and their gradients
  bool alphaScales = false;  ///< GEMMs that multiply sums by a constant before rounding
  bool resultScales = false; ///< GEMMs that multiply FP32 sums by an FP32 scalar in memory before they are rounded
  bool biasThroughReshape = false; ///< a GEMM's bias, also where the result is reshaped before the bias is added
  llvm::SmallVector<mpt_dtype> roundedOperands; ///< types that GEMMs round FP32 operands to while they pack
  bool everyOperandType =
      true; ///< contractions take all float types; else 8-bit operands that are not native widen first
};

/// What passes are told of a target. Fusion and memory take these as options of their passes.
struct Capabilities {
  KernelModel kernels = KernelModel::VectorLoops;
  KernelCapabilities fusion; ///< what such kernels can do, and so what may share one
  unsigned vectorBits = 128; ///< of the vectors in VectorLoops
  LibraryCalls calls;
  llvm::SmallVector<NativeType> native; ///< 16-bit and 8-bit operands that are multiplied as they are

  bool isNative(Contraction op, unsigned operand, mpt_dtype type) const {
    return llvm::any_of(native, [&](const NativeType &entry) {
      return entry.op == op && entry.operand == operand && entry.type == type;
    });
  }
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
  /// Takes the value of one of the flags, or returns what was expected instead.
  virtual std::optional<std::string> set(llvm::StringRef flag, llvm::StringRef value);

  virtual Capabilities capabilities() const = 0;
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

} // namespace mpt::target

#endif // MPT_TARGET_TARGET_H
