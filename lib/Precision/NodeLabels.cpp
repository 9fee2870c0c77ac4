// SPDX-License-Identifier: Apache-2.0
// Cheapest labels as minimum cuts.
#include "mpt/Precision/NodeLabels.h"

#include "llvm/ADT/STLExtras.h"

using namespace mpt;

int NodeLabels::addFree(bool isExact) {
  exact.push_back(isExact);
  return kWide + static_cast<int>(exact.size());
}

void NodeLabels::addValue(int producer, llvm::ArrayRef<int> users, int64_t bytes) {
  if (producer != kEither && !users.empty())
    values.push_back({producer, llvm::SmallVector<int, 2>(users), bytes});
}

std::vector<bool> NodeLabels::allWide() const {
  std::vector<bool> narrow(exact.size() + 2, false);
  narrow[kNarrow] = true;
  return narrow;
}

// One unit breaks ties; a byte outweighs the ties of a thousand nodes, or of a million where bytes alone count.
std::vector<bool> NodeLabels::cheapest(int64_t launchBytes) const { return solve(1 << 10, launchBytes << 10); }
std::vector<bool> NodeLabels::fewestBytes() const { return solve(1 << 20, 1 << 10); }

std::vector<bool> NodeLabels::solve(int64_t perByte, int64_t perCast) const {
  MinCut cut;
  for (bool isExact : exact) {
    int node = cut.addNode();
    cut.addEdge(isExact ? kNarrow : node, isExact ? node : kWide, 1);
  }
  for (const CastValue &value : values) {
    int64_t price = std::min(value.bytes, MinCut::kInfinite / (4 * perByte)) * perByte + perCast;
    cut.addSharedEdge(value.producer, {value.users.begin(), value.users.end()}, price, price);
  }
  cut.solve();
  std::vector<bool> narrow = allWide();
  for (size_t i = 0; i < exact.size(); ++i)
    narrow[i + 2] = cut.onSourceSide(static_cast<int>(i) + 2);
  return narrow;
}

int64_t NodeLabels::castBytes(const std::vector<bool> &narrow) const {
  int64_t total = 0;
  for (const CastValue &value : values)
    if (llvm::any_of(value.users, [&](int user) { return narrow[user] != narrow[value.producer]; }))
      total += value.bytes;
  return total;
}
