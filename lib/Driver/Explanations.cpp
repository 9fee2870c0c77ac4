// SPDX-License-Identifier: Apache-2.0
// The page of refusals, which the build makes part of the binary, by sections.
#include "mpt/Driver/Explanations.h"

#include "mpt/Support/NearNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVectorExtras.h"

using namespace llvm;
using namespace mpt;

static constexpr StringLiteral page =
#include "mpt/Driver/Refusals.inc"
    ;

/// The sections of the page, each from its code on.
static SmallVector<StringRef> sections() {
  SmallVector<StringRef> all;
  page.split(all, "\n## ");
  all.erase(all.begin()); // the page's text before the first one
  return all;
}

static StringRef codeOf(StringRef section) { return section.split('\n').first; }

std::vector<Described> mpt::describeRefusals() {
  std::vector<Described> all;
  for (StringRef section : sections())
    all.push_back({codeOf(section), section.split("\n\n").second.split("\n").first.str()});
  return all;
}

Expected<std::string> mpt::explain(StringRef code) {
  StringRef name = code.trim("[]");
  std::string whole = (name.starts_with("mpt-") ? name : "mpt-" + name).str();
  SmallVector<StringRef> all = sections();
  auto found = find_if(all, [&](StringRef section) { return codeOf(section) == whole; });
  if (found != all.end())
    return found->rtrim().str() + "\n";
  return createStringError("expected the code of a refusal, got '" + code + "'; " +
                           whatThereIs(whole, map_to_vector(all, codeOf)) + "; --explain lists them");
}
