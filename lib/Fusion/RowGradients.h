// SPDX-License-Identifier: Apache-2.0
// Rows whose elements are read for a sum and again by ops behind it: one kernel for both, where a team of threads keeps
// a row.
#ifndef MPT_LIB_FUSION_ROWGRADIENTS_H
#define MPT_LIB_FUSION_ROWGRADIENTS_H

#include "GroupGraph.h"
#include "KernelRules.h"

#include "llvm/ADT/SetVector.h"

namespace mpt {

/// Elements that sums of their rows add up, and that ops behind the sums read, without a library call in between.
KernelRules::OpSet findRowTerms(mlir::Block &block);

/// The backward pass's arithmetic on the elements that a sum of the forward pass adds up, and on the sum itself, with
/// no library call and no other sum in between, is done with the sum, as the gradient of a loss by rows: the elements
/// are read once. Joined one by one they would not come together: each row's scalars serve the loss as well, and the
/// kernel that adds up the loss would lie between the two.
class RowGradients {
public:
  /// `late`: the ops of the backward pass; `updates`: ops that stay with the updates of state.
  RowGradients(GroupGraph &graph, const KernelRules &rules, const KernelRules::OpSet &late,
               const KernelRules::OpSet &updates)
      : graph(graph), rules(rules), late(late), updates(updates) {}
  /// Merges the gradient of `sum`'s rows with the sum. Returns whether there is one, and one kernel can compute both.
  bool join(ReduceOp sum);

private:
  using OpList = llvm::SetVector<mlir::Operation *>;
  OpList elementsBehind(ReduceOp sum, OpList &scalars) const;
  void addGradients(ReduceOp sum, OpList &elements) const;
  OpList withOperands(ReduceOp sum, const OpList &scalars, const OpList &elements) const;
  bool mergeAll(llvm::ArrayRef<mlir::Operation *> wanted);

  GroupGraph &graph;
  const KernelRules &rules;
  const KernelRules::OpSet &late, &updates;
};

} // namespace mpt

#endif // MPT_LIB_FUSION_ROWGRADIENTS_H
