// SPDX-License-Identifier: Apache-2.0
// The table that the build makes of the folder of policies.
#include "mpt/Precision/BuiltinPolicies.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace {
struct Builtin {
  StringRef name, text;
};
const Builtin builtins[] = {
#include "mpt/Precision/BuiltinPolicies.inc"
};
} // namespace

std::vector<StringRef> mpt::builtinPolicies() {
  std::vector<StringRef> names;
  for (const Builtin &builtin : builtins)
    names.push_back(builtin.name);
  return names;
}

std::optional<StringRef> mpt::builtinPolicyText(StringRef name) {
  const Builtin *found = find_if(builtins, [&](const Builtin &builtin) { return builtin.name == name; });
  return found == std::end(builtins) ? std::nullopt : std::optional(found->text);
}
