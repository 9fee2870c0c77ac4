// SPDX-License-Identifier: Apache-2.0
// Groups of a block's ops in a topological order, which every merge keeps.
#ifndef MPT_LIB_FUSION_GROUPGRAPH_H
#define MPT_LIB_FUSION_GROUPGRAPH_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace mpt {

class GroupGraph {
public:
  /// Every op of `block` is a group of its own, numbered by its position.
  explicit GroupGraph(mlir::Block &block);

  /// The ops of a group; empty for one that was merged into another.
  llvm::ArrayRef<mlir::Operation *> ops(unsigned group) const { return groups[group]; }
  /// The number of the group that `op` belongs to.
  unsigned groupOf(mlir::Operation *op) const { return owner.lookup(op); }
  bool isAlone(mlir::Operation *op) const { return groups[groupOf(op)].size() == 1; }
  /// All groups' numbers in topological order.
  llvm::ArrayRef<unsigned> sequence() const { return order; }
  /// Sorts `ops` by their positions in the block.
  void sortByPosition(llvm::SmallVectorImpl<mlir::Operation *> &ops) const;

  /// The ops of two groups, each of which is sorted, by their positions.
  llvm::SmallVector<mlir::Operation *> inOrder(unsigned a, unsigned b) const;

  /// Makes `a` and `b` neighbours in the order. Returns false, and changes nothing, where a value leaves the one and
  /// comes back to the other through a third: merged they would wait for themselves.
  bool bringTogether(unsigned a, unsigned b);
  /// Merges `b` into `a`, which were brought together.
  void merge(unsigned a, unsigned b);
  /// Appends `op`, which is its group's only one, to `group`.
  void append(mlir::Operation *op, unsigned group);
  /// Appends all ops of `from` to `into` whatever the order: for groups that nothing in the block waits for.
  void appendAll(unsigned into, unsigned from);
  /// Undoes append: `op` is a group of its own again, number `group`.
  void isolate(mlir::Operation *op, unsigned group);
  /// Merges all of `wanted`, each a group of its own, in the order of the block; or nothing. Returns whether it did.
  bool mergeAll(llvm::ArrayRef<mlir::Operation *> wanted);

private:
  llvm::DenseMap<mlir::Operation *, unsigned> owner, position;
  llvm::SmallVector<llvm::SmallVector<mlir::Operation *>> groups;
  llvm::SmallVector<unsigned> rank, order; ///< rank[g] is g's place in `order`
};

} // namespace mpt

#endif // MPT_LIB_FUSION_GROUPGRAPH_H
