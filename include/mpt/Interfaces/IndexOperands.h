// SPDX-License-Identifier: Apache-2.0
// Which operands are indices, and their legal values; apart from the other interfaces because only their check asks.
#ifndef MPT_INTERFACES_INDEXOPERANDS_H
#define MPT_INTERFACES_INDEXOPERANDS_H

#include "mlir/IR/OpDefinition.h"

namespace mpt {

/// A set of integers: closed intervals, ascending and apart from each other.
class IndexSet {
public:
  using Interval = std::pair<int64_t, int64_t>;

  /// Empty where `high` is below `low`.
  static IndexSet range(int64_t low, int64_t high);
  static IndexSet all() { return range(INT64_MIN, INT64_MAX); }
  static IndexSet of(int64_t value) { return range(value, value); }

  llvm::ArrayRef<Interval> intervals() const { return parts; }
  bool contains(int64_t value) const;
  bool operator==(const IndexSet &other) const { return parts == other.parts; }
  IndexSet unite(const IndexSet &other) const;
  IndexSet intersect(const IndexSet &other) const;
  IndexSet complement() const;
  /// Every x with x + `by` in this set.
  IndexSet beforeAdding(int64_t by) const;
  /// Every x with x * `factor`, which is positive, in this set.
  IndexSet beforeMultiplying(int64_t factor) const;

private:
  llvm::SmallVector<Interval, 2> parts;
};

} // namespace mpt

#include "mpt/Interfaces/IndexOperands.h.inc"

#endif // MPT_INTERFACES_INDEXOPERANDS_H
