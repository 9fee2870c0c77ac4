// SPDX-License-Identifier: Apache-2.0
// Updates of large states, small values that they wait for, and how long they would wait in a kernel with others.
#ifndef MPT_LIB_FUSION_UPDATEWAITS_H
#define MPT_LIB_FUSION_UPDATEWAITS_H

#include "mlir/IR/Block.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace mpt {

class UpdateWaits {
public:
  explicit UpdateWaits(mlir::Block &block);
  /// Whether one kernel of `ops`, whose set `members` is and which only small values and new states leave, runs later
  /// than an update that is part of it, or reads one of these values, could: its gradient would stay in memory for that
  /// long.
  bool delays(llvm::ArrayRef<mlir::Operation *> ops, const llvm::DenseSet<mlir::Operation *> &members) const;

private:
  /// Positions in the block: of the last call that an op waits for, and of the last one that the first update behind it
  /// waits for.
  struct Time {
    int64_t ready = 0, due = INT64_MAX;
  };
  llvm::DenseMap<mlir::Operation *, Time> times;
};

} // namespace mpt

#endif // MPT_LIB_FUSION_UPDATEWAITS_H
