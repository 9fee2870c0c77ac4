// The code of a library's kernels, once for every architecture.
#ifndef MPT_TARGET_CUDA_IMAGES_H
#define MPT_TARGET_CUDA_IMAGES_H

#include "../Emit.h"

#include "mpt/Target/CUDA.h"

namespace mpt::cuda {

/// Fills program.images. Code for the host goes to `objects`; `listing`, when given, receives PTX.
llvm::LogicalResult buildImages(mlir::ModuleOp module, target::Program &program, const EmitOptions &options,
                                unsigned threads, llvm::SmallVectorImpl<target::Object> &objects, std::string *listing);

/// Adds the kernels that the runtime launches by itself for convolutions, where `module` has any.
void addSupportKernels(mlir::ModuleOp module);

/// The assembler to use, as a path: $MPT_PTXAS, the PATH's, or that of /usr/local/cuda; empty when there is none.
std::string findPtxas();

/// Machine code of PTX text.
llvm::Expected<std::string> assemble(llvm::StringRef ptxas, llvm::StringRef ptx, llvm::StringRef arch);

} // namespace mpt::cuda

#endif // MPT_TARGET_CUDA_IMAGES_H
