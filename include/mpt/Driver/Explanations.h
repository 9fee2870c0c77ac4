// SPDX-License-Identifier: Apache-2.0
// Long texts about the refusals that end in a code, such as [mpt-nothing-trains].
#ifndef MPT_DRIVER_EXPLANATIONS_H
#define MPT_DRIVER_EXPLANATIONS_H

#include "mpt/Support/Described.h"
#include "llvm/Support/Error.h"

namespace mpt {

/// Every code with its first sentence, in the order of docs/refusals.md.
std::vector<Described> describeRefusals();

/// The section of docs/refusals.md about `code`, which may have its brackets and may lack "mpt-".
llvm::Expected<std::string> explain(llvm::StringRef code);

} // namespace mpt

#endif // MPT_DRIVER_EXPLANATIONS_H
