// SPDX-License-Identifier: Apache-2.0
// What a replica keeps where its step is cut at its meetings with the other replicas.
#ifndef MPT_DISTRIBUTION_KEPTVALUES_H
#define MPT_DISTRIBUTION_KEPTVALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt::dist {

/// A value of a step that a replica computes between two meetings and needs behind a later one. Part p of a step lies
/// behind p meetings.
struct KeptValue {
  unsigned op, result;              ///< place in the block of the step, and number of the result
  int64_t made;                     ///< part that computes it
  llvm::SmallVector<int64_t> taken; ///< parts that read it, in falling order

  mlir::Value in(llvm::ArrayRef<mlir::Operation *> ops) const;
};

/// The ops of a step's block, in order: those that `KeptValue::op` counts.
llvm::SmallVector<mlir::Operation *> opsOf(mlir::func::FuncOp step);

/// What a replica keeps of a step, whose last part is `last`. What is the same on all replicas, or a shard, is computed
/// again in every part; so is what costs a few operations on values that take no more memory. Nothing is kept of a step
/// in which no collective on a replica's own values waits for another.
llvm::SmallVector<KeptValue> keptValues(mlir::func::FuncOp step, int64_t last);

} // namespace mpt::dist

#endif // MPT_DISTRIBUTION_KEPTVALUES_H
