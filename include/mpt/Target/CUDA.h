// SPDX-License-Identifier: Apache-2.0
// The CUDA target: from functions on planned buffers, whose kernels are GPU kernels, to a library that trainers link.
#ifndef MPT_TARGET_CUDA_H
#define MPT_TARGET_CUDA_H

#include "mpt/Target/Library.h"
#include "mpt/Target/Ptx.h"

#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace mpt::cuda {

/// Architectures that libraries carry code for unless the user says otherwise.
inline constexpr llvm::StringLiteral kDefaultArchs = "sm_80,sm_90,sm_100";

struct EmitOptions : target::LibraryOptions {
  /// sm_NN each; or "host": kernels as loops on this processor, which tests run without a GPU.
  std::vector<std::string> archs;
  std::string ptxas; ///< assembler of cubins; empty: looked for, and PTX alone where there is none; "none": PTX alone
  unsigned threads = 0; ///< of code generation; 0: all
};

/// Whether all architectures of a list such as "sm_89,sm_90" multiply 8-bit floats; the default's where it is empty.
bool haveFloat8(llvm::StringRef archs);

/// As cpu::emitLibrary, linked with libmpt_rt_cuda: entry points for the host, and all kernels as PTX (and cubin) for
/// every architecture. Expects kernels that memory-bufferize made with `kernels=gpu`.
llvm::LogicalResult emitLibrary(mlir::ModuleOp module, const EmitOptions &options);

} // namespace mpt::cuda

#endif // MPT_TARGET_CUDA_H
