// SPDX-License-Identifier: Apache-2.0
// Where the runtime libraries of targets are.
#ifndef MPT_TARGET_RUNTIME_H
#define MPT_TARGET_RUNTIME_H

#include "llvm/ADT/StringRef.h"
#include <string>

namespace mpt::target {

/// Path of runtime library `file` in the tree or installation that this program belongs to; empty when there is none.
std::string findRuntime(llvm::StringRef file);

} // namespace mpt::target

#endif // MPT_TARGET_RUNTIME_H
