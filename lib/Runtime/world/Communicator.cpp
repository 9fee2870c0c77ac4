// SPDX-License-Identifier: Apache-2.0
// Names of collectives for messages.
#include "world/Communicator.h"

using namespace mpt::rt;

std::string mpt::rt::describe(const Tag &tag) {
  static const char *const kinds[] = {"nothing", "a barrier", "a broadcast", "a comparison of texts",
                                      "bucket ", "gather "};
  std::string text = tag.kind < std::size(kinds) ? kinds[tag.kind] : "an unknown collective";
  if (tag.kind == Tag::Reduce || tag.kind == Tag::Gather)
    text += std::to_string(tag.bucket) + " of step " + std::to_string(tag.step);
  return text + " (collective " + std::to_string(tag.sequence) + ")";
}
