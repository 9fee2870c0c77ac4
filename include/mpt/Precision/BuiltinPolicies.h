// SPDX-License-Identifier: Apache-2.0
// The policies that are part of the binary: one for each file of lib/Precision/policies.
#ifndef MPT_PRECISION_BUILTINPOLICIES_H
#define MPT_PRECISION_BUILTINPOLICIES_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <vector>

namespace mpt {

/// Names of the built-in policies, in alphabetic order, as help, errors and docs/generated/policies.md list them.
std::vector<llvm::StringRef> builtinPolicies();
/// The text of a policy's file; nothing for other names.
std::optional<llvm::StringRef> builtinPolicyText(llvm::StringRef name);

} // namespace mpt

#endif // MPT_PRECISION_BUILTINPOLICIES_H
