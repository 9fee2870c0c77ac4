// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of index operands, and sets of integers.
#include "mpt/Interfaces/IndexOperands.h"

#include "llvm/Support/MathExtras.h"

using namespace mpt;

#include "mpt/Interfaces/IndexOperands.cpp.inc"

/// Bounds at the ends of the type stand for no bound, and stay.
static int64_t moved(int64_t bound, int64_t by) {
  int64_t result;
  if (bound == INT64_MIN || bound == INT64_MAX)
    return bound;
  if (llvm::SubOverflow(bound, by, result))
    return by > 0 ? INT64_MIN : INT64_MAX;
  return result;
}

IndexSet IndexSet::range(int64_t low, int64_t high) {
  IndexSet set;
  if (low <= high)
    set.parts.push_back({low, high});
  return set;
}

bool IndexSet::contains(int64_t value) const {
  return llvm::any_of(parts, [&](Interval part) { return part.first <= value && value <= part.second; });
}

IndexSet IndexSet::unite(const IndexSet &other) const {
  llvm::SmallVector<Interval, 4> sorted(parts.begin(), parts.end());
  sorted.append(other.parts.begin(), other.parts.end());
  llvm::sort(sorted);
  IndexSet set;
  for (Interval part : sorted) {
    if (!set.parts.empty() && (set.parts.back().second == INT64_MAX || part.first <= set.parts.back().second + 1))
      set.parts.back().second = std::max(set.parts.back().second, part.second);
    else
      set.parts.push_back(part);
  }
  return set;
}

IndexSet IndexSet::intersect(const IndexSet &other) const {
  IndexSet set;
  for (Interval a : parts)
    for (Interval b : other.parts)
      set = set.unite(range(std::max(a.first, b.first), std::min(a.second, b.second)));
  return set;
}

IndexSet IndexSet::complement() const {
  IndexSet set = all();
  for (Interval part : parts) {
    IndexSet below = part.first == INT64_MIN ? IndexSet() : range(INT64_MIN, part.first - 1);
    IndexSet above = part.second == INT64_MAX ? IndexSet() : range(part.second + 1, INT64_MAX);
    set = set.intersect(below.unite(above));
  }
  return set;
}

IndexSet IndexSet::beforeAdding(int64_t by) const {
  IndexSet set;
  for (Interval part : parts)
    set = set.unite(range(moved(part.first, by), moved(part.second, by)));
  return set;
}

IndexSet IndexSet::beforeMultiplying(int64_t factor) const {
  IndexSet set;
  for (Interval part : parts) {
    int64_t low = part.first == INT64_MIN ? INT64_MIN : llvm::divideCeilSigned(part.first, factor);
    int64_t high = part.second == INT64_MAX ? INT64_MAX : llvm::divideFloorSigned(part.second, factor);
    set = set.unite(range(low, high));
  }
  return set;
}
