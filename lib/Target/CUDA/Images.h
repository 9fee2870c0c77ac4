// SPDX-License-Identifier: Apache-2.0
// The code of a library's kernels, once for every architecture.
#ifndef MPT_TARGET_CUDA_IMAGES_H
#define MPT_TARGET_CUDA_IMAGES_H

#include "../Emit.h"
#include "Emit.h"

#include "mpt/Memory/KernelCode.h"

namespace mpt::cuda {

/// Outputs of buildImages() beside program.images.
struct ImageProducts {
  llvm::SmallVectorImpl<target::Object> &objects; ///< code for the host
  std::string *listing;                           ///< when given, receives PTX
  memory::KernelCode *code;                       ///< when given, receives the assembler's report
};

/// Fills program.images.
llvm::LogicalResult buildImages(mlir::ModuleOp module, target::Program &program, const CodeOptions &options,
                                unsigned threads, const ImageProducts &products);

/// Adds the kernels that the runtime launches by itself: for convolutions, where `module` has any, and with `checks`
/// for the search for infinities and NaN.
void addSupportKernels(mlir::ModuleOp module, bool checks);

/// Adds kernels for the epilogues of GEMMs that the library does not have.
llvm::LogicalResult addChainKernels(mlir::ModuleOp module);

/// The assembler to use, as a path: on the PATH or in /usr/local/cuda; empty when there is none.
std::string findPtxas();

/// Resources of a kernel, as `ptxas -v` reports them.
struct KernelUse {
  std::string name;
  int64_t registers = 0, sharedBytes = 0;
  int64_t spilledBytes = 0; ///< stores and loads
};
llvm::SmallVector<KernelUse> usesOf(llvm::StringRef log);

/// Machine code of PTX text; `uses` receives the kernels' resources. Kernels that spill are allowed more registers,
/// also in `ptx`: the assembler trades a few bytes of local memory for threads at a time, which costs more than it
/// gains where memory limits a kernel.
llvm::Expected<std::string> assemble(llvm::StringRef ptxas, std::string &ptx, llvm::StringRef arch,
                                     llvm::SmallVectorImpl<KernelUse> &uses);

/// Lets kernels of a PTX text have as many registers as one block a multiprocessor leaves them.
void allowRegisters(std::string &ptx, llvm::ArrayRef<KernelUse> kernels);

} // namespace mpt::cuda

#endif // MPT_TARGET_CUDA_IMAGES_H
