// SPDX-License-Identifier: Apache-2.0
// The label problem of cast placement: which nodes are narrow, given what casts between them cost.
#ifndef MPT_PRECISION_NODELABELS_H
#define MPT_PRECISION_NODELABELS_H

#include "mpt/Support/MinCut.h"

#include "llvm/ADT/SmallVector.h"

namespace mpt {

/// Labels are the cut's terminals; free nodes have higher numbers; what takes either type without a cast has none.
inline constexpr int kNarrow = MinCut::kSource, kWide = MinCut::kSink, kEither = -1;

/// Free nodes, and values that cost a cast, once, where their producer and at least one user have different labels.
class NodeLabels {
public:
  /// Of cuts that cost the same, exact ops go narrow and rounding ops stay wide.
  int addFree(bool isExact);
  void addValue(int producer, llvm::ArrayRef<int> users, int64_t bytes);

  /// The labels that move the fewest bytes, where each cast costs `launchBytes` more.
  std::vector<bool> cheapest(int64_t launchBytes) const;
  /// The labels that move the fewest bytes, and of those the ones with the fewest casts.
  std::vector<bool> fewestBytes() const;
  /// Bytes that casts move under `narrow`, which has an entry a node.
  int64_t castBytes(const std::vector<bool> &narrow) const;
  /// All wide; the terminals have their own labels.
  std::vector<bool> allWide() const;

private:
  struct CastValue {
    int producer;
    llvm::SmallVector<int, 2> users;
    int64_t bytes;
  };
  std::vector<bool> solve(int64_t perByte, int64_t perCast) const;

  std::vector<bool> exact; ///< of free nodes
  std::vector<CastValue> values;
};

} // namespace mpt

#endif // MPT_PRECISION_NODELABELS_H
