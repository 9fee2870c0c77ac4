// SPDX-License-Identifier: Apache-2.0
// The CPU target: from functions on planned buffers to a library that trainers link.
#ifndef MPT_TARGET_CPU_H
#define MPT_TARGET_CPU_H

#include "mpt/Target/Library.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include <string>

namespace mpt::cpu {

using target::LibraryKind;

struct EmitOptions : target::LibraryOptions {
  std::string cpu = "native"; ///< processor to generate code for, as LLVM's -mcpu names it
  unsigned threads = 0;       ///< of code generation; 0: all
};

/// Writes lib<name>.so (or .a, or <name>.o), <name>.h, <name>.safetensors and <name>.json to `outDir`. Expects the
/// output of --memory-plan and train.state symbols; the discardable dictionary `mpt.manifest` of the module goes into
/// the manifest. Every file is written beside its name and renamed once all are complete: a failure (unknown processor,
/// no linker, full disk) leaves no half-written file and is reported at the module's location.
llvm::LogicalResult emitLibrary(mlir::ModuleOp module, const EmitOptions &options);

/// Whether `cpu` ("native" for this machine) has an LLVM feature such as "avx512bf16". False for unknown processors.
bool hasFeature(llvm::StringRef cpu, llvm::StringRef feature);

/// Width in bits of the vectors that kernels for `cpu` should use: 512, 256 or 128.
unsigned vectorBits(llvm::StringRef cpu);

/// Dialects and translations that emitLibrary needs in a context; called when a tool starts.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace mpt::cpu

#endif // MPT_TARGET_CPU_H
