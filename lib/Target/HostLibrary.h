// SPDX-License-Identifier: Apache-2.0
// The emission of targets whose kernels are functions of the host.
#ifndef MPT_TARGET_HOSTLIBRARY_H
#define MPT_TARGET_HOSTLIBRARY_H

#include "Machine.h"

#include "mpt/Target/Target.h"

namespace mpt::target {

/// Writes the library of a target whose memory is the host's: kernels and entry points for `processor`. Entry points
/// call the runtime's functions as `callPrefix` + parallel, gemm, conv, copy, zero, check, with the signatures of
/// mpt_rt_* in mpt-c/abi.h.
llvm::LogicalResult emitHostLibrary(mlir::ModuleOp module, const LibraryOptions &options, const Target &target,
                                    const Processor &processor, llvm::StringRef callPrefix);

/// Dialects and translations that it needs in a context.
void registerHostDialects(mlir::DialectRegistry &registry);

} // namespace mpt::target

#endif // MPT_TARGET_HOSTLIBRARY_H
