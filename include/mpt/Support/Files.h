// SPDX-License-Identifier: Apache-2.0
// Writing of files that are whole or not there.
#ifndef MPT_SUPPORT_FILES_H
#define MPT_SUPPORT_FILES_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt {

/// Writes the output of `print` to `path` ("-" is standard output): beside it first, then renamed, so that a failure
/// leaves the old file. A device or a pipe is written to directly. The error says "cannot write 'path': why"; a full
/// disk is an error too.
llvm::Error writeFile(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> print);

} // namespace mpt

#endif // MPT_SUPPORT_FILES_H
