// SPDX-License-Identifier: Apache-2.0
// Rows of running sums that take their products by the group.
#ifndef MPT_EVALUATION_GROUPEDROWS_H
#define MPT_EVALUATION_GROUPEDROWS_H

#include "mpt/Dialect/MPT/OrderedSums.h"

#include "llvm/ADT/ArrayRef.h"
#include <utility>
#include <vector>

namespace mpt {

/// Rows of sums of one length, side by side, to which rows of products are added one after the other.
class GroupedRows {
public:
  virtual ~GroupedRows() = default;
  /// sums[i] += factor others[i] for one row of the results. `others` must live until finish().
  void add(double *sums, double factor, const double *others) {
    size_t number = (sums - results.data()) / length;
    std::vector<Product> &row = pending[number];
    row.emplace_back(factor, others);
    if (row.size() == group)
      addPending(number);
  }
  virtual void finish() {
    for (size_t number = 0; number < pending.size(); ++number)
      if (!pending[number].empty())
        addPending(number);
  }

protected:
  using Product = std::pair<double, const double *>;
  /// `results` are zero at the start, and the sums after finish().
  GroupedRows(llvm::MutableArrayRef<double> results, int64_t length, size_t group)
      : results(results), length(length), group(group), pending(length ? results.size() / length : 0) {}
  /// At most `group` products of one row.
  virtual void addGroup(size_t row, llvm::ArrayRef<Product> products) = 0;

  llvm::MutableArrayRef<double> results;
  const int64_t length;

private:
  void addPending(size_t row) {
    addGroup(row, pending[row]);
    pending[row].clear();
  }
  const size_t group;
  std::vector<std::vector<Product>> pending;
};

/// Sums of SumOrder::TwoChains.
class TwoChainRows final : public GroupedRows {
public:
  TwoChainRows(llvm::MutableArrayRef<double> results, int64_t length);

private:
  void addGroup(size_t row, llvm::ArrayRef<Product> products) override;
};

/// The type in which an operand of a contraction is multiplied: its own, or the narrower one that it is read in.
mlir::Type multipliedType(mlir::Operation *op, unsigned operand);
/// The order that --batch-invariant gives to the sums of a contraction, in FP32.
SumOrder sumOrderOf(mlir::Operation *op);

} // namespace mpt

#endif // MPT_EVALUATION_GROUPEDROWS_H
