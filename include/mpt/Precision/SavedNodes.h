// SPDX-License-Identifier: Apache-2.0
// Nodes whose values wait for the backward pass in 8 bits, by a policy's rules.
#ifndef MPT_PRECISION_SAVEDNODES_H
#define MPT_PRECISION_SAVEDNODES_H

#include "mpt/Precision/Settings.h"

#include "llvm/Support/Regex.h"

namespace mpt {

/// The rules `saved` of a policy. The last one that matches a node's whole name decides; without one the node's values
/// wait in their own type.
class SavedNodes {
public:
  /// `all`: of every node, unless a rule says otherwise.
  explicit SavedNodes(const PrecisionSettings &settings, bool all = false) : all(all) {
    for (const SavedRule &rule : settings.savedNodes)
      rules.emplace_back(rule.coded, llvm::Regex("^(" + rule.regex + ")$"));
  }
  bool empty() const { return !all && rules.empty(); }
  bool areCoded(llvm::StringRef node) const {
    bool coded = all;
    for (const auto &[decides, regex] : rules)
      if (regex.match(node))
        coded = decides;
    return coded;
  }

private:
  bool all;
  std::vector<std::pair<bool, llvm::Regex>> rules;
};

} // namespace mpt

#endif // MPT_PRECISION_SAVEDNODES_H
