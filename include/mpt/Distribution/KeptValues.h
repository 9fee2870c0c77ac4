// SPDX-License-Identifier: Apache-2.0
// Values that a replica keeps where its step is cut at its synchronization points with the other replicas.
#ifndef MPT_DISTRIBUTION_KEPTVALUES_H
#define MPT_DISTRIBUTION_KEPTVALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt::dist {

/// A value of a step that a replica computes between two synchronization points and needs behind a later one. Part p of
/// a step lies behind p of them.
struct KeptValue {
  unsigned op, result;              ///< place in the block of the step, and number of the result
  int64_t made;                     ///< part that computes it
  llvm::SmallVector<int64_t> taken; ///< parts that read it, in falling order

  mlir::Value in(llvm::ArrayRef<mlir::Operation *> ops) const;
};

/// The ops of a step's block, in order, as `KeptValue::op` counts them.
llvm::SmallVector<mlir::Operation *> opsOf(mlir::func::FuncOp step);

/// Values that a replica keeps of a step, whose last part is `last`. Values that are the same on all replicas, or a
/// shard, are computed again in every part; so are values that cost a few operations on operands of no more memory.
/// Nothing is kept of a step in which no collective on a replica's own values waits for another.
llvm::SmallVector<KeptValue> keptValues(mlir::func::FuncOp step, int64_t last);

} // namespace mpt::dist

#endif // MPT_DISTRIBUTION_KEPTVALUES_H
