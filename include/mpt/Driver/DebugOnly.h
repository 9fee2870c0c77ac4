// SPDX-License-Identifier: Apache-2.0
// --debug-only=PASSES of mpt-opt.
#ifndef MPT_DRIVER_DEBUGONLY_H
#define MPT_DRIVER_DEBUGONLY_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mpt {

/// From here on the passes in `flags`, as in "fusion-form,memory-plan", say on standard error why they refuse rewrites
/// (mpt/Support/Refusal.h). An error names words that are no passes.
llvm::Error debugOnly(llvm::StringRef flags);

} // namespace mpt

#endif // MPT_DRIVER_DEBUGONLY_H
