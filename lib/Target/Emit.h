// SPDX-License-Identifier: Apache-2.0
// The steps of emission that targets share.
#ifndef MPT_TARGET_EMIT_H
#define MPT_TARGET_EMIT_H

#include "Machine.h"
#include "Program.h"

#include "mpt/Target/Library.h"

namespace mpt::target {

/// Checks the library's name, and finds the runtime library `runtime` where the options name none.
llvm::LogicalResult complete(mlir::ModuleOp module, llvm::StringRef runtime, LibraryOptions &options);

/// Writes the library with its weights, header and manifest, all of them or none.
llvm::Error writeLibrary(const Program &program, const std::string &manifest, llvm::ArrayRef<Object> objects,
                         const std::string &listing, const LibraryOptions &options);

} // namespace mpt::target

#endif // MPT_TARGET_EMIT_H
