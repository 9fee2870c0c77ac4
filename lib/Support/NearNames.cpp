// SPDX-License-Identifier: Apache-2.0
// Likeness of names: edits between them, without the syntax of regular expressions.
#include "mpt/Support/NearNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mpt;
using namespace llvm;

/// The texts that the alternatives of a regular expression spell, or the name itself.
static SmallVector<std::string> spellings(StringRef expression) {
  SmallVector<std::string> result{""};
  for (size_t i = 0; i < expression.size(); ++i) {
    char c = expression[i];
    bool repeats = i + 1 < expression.size() && StringRef("*+?").contains(expression[i + 1]);
    if (c == '|')
      result.emplace_back();
    else if (c == '\\' && i + 1 < expression.size())
      result.back() += expression[++i];
    else if (!StringRef("*+?^$()[]{}").contains(c) && !(c == '.' && repeats))
      result.back() += c;
  }
  llvm::erase(result, "");
  return result;
}

SmallVector<StringRef> mpt::nearNames(StringRef name, ArrayRef<StringRef> names, size_t most) {
  SmallVector<std::pair<unsigned, StringRef>> scored;
  SmallVector<std::string> wanted = spellings(name);
  for (StringRef known : names) {
    unsigned best = ~0u;
    for (const std::string &spelled : wanted) {
      unsigned farthest = std::max<unsigned>(2, spelled.size() / 3);
      unsigned distance = known.edit_distance_insensitive(spelled);
      // One that holds the other is near as well: Attention and GroupQueryAttention.
      StringRef longer = known.size() > spelled.size() ? known : spelled, shorter = longer == known ? spelled : known;
      bool isPart = shorter.size() > 3 ? longer.contains_insensitive(shorter)
                                       : shorter.size() == 3 && longer.starts_with(shorter);
      if (distance <= farthest || isPart)
        best = std::min(best, distance);
    }
    if (best != ~0u)
      scored.emplace_back(best, known);
  }
  llvm::sort(scored);
  scored.erase(llvm::unique(scored), scored.end());
  SmallVector<StringRef> result;
  for (auto &[distance, known] : ArrayRef(scored).take_front(most))
    result.push_back(known);
  return result;
}

std::string mpt::whatThereIs(StringRef name, ArrayRef<StringRef> names) {
  constexpr size_t mostNames = 8;
  auto listed = [](ArrayRef<StringRef> some) { return "'" + join(some, "', '") + "'"; };
  if (SmallVector<StringRef> near = nearNames(name, names); !near.empty())
    return "near it: " + listed(near);
  SmallVector<StringRef> all(names);
  llvm::sort(all);
  all.erase(llvm::unique(all), all.end());
  if (all.empty())
    return "there is none";
  std::string text = "there are " + listed(ArrayRef(all).take_front(mostNames));
  return all.size() > mostNames ? text + " and " + std::to_string(all.size() - mostNames) + " more" : text;
}
