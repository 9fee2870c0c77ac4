// SPDX-License-Identifier: Apache-2.0
// From functions on planned buffers, whose kernels are GPU kernels, to a library that trainers link.
#ifndef MPT_TARGET_CUDA_EMIT_H
#define MPT_TARGET_CUDA_EMIT_H

#include "mpt/Target/Target.h"

#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace mpt::cuda {

/// Architectures that kernels are assembled for, and the assembler.
struct CodeOptions {
  /// sm_NN each, or sm_90a; or "host": kernels as loops on this processor, which tests run without a GPU.
  std::vector<std::string> archs;
  std::string ptxas; ///< assembler of cubins; empty: looked for, and PTX alone where there is none; "none": PTX alone
};

/// Writes a library that libmpt_rt_cuda runs: entry points for the host, and all kernels as PTX (and cubin) for every
/// architecture. Expects kernels that lowering-emit-kernels made with `target=cuda`.
llvm::LogicalResult emitLibrary(mlir::ModuleOp module, const target::LibraryOptions &options,
                                const target::Target &about, const CodeOptions &code);

} // namespace mpt::cuda

#endif // MPT_TARGET_CUDA_EMIT_H
