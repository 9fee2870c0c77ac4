// SPDX-License-Identifier: Apache-2.0
// Kernels over many tensors: updates of all parameters alike, norms and finite checks of all gradients.
#ifndef MPT_LIB_FUSION_BUNDLES_H
#define MPT_LIB_FUSION_BUNDLES_H

#include "GroupGraph.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace mpt {

class Bundles {
public:
  using OpSet = llvm::DenseSet<mlir::Operation *>;
  Bundles(mlir::Block &block, GroupGraph &graph) : block(block), graph(graph) {}

  /// Finds `updates`, and bundles `sums`. Before any other merge.
  void bundleSums();
  /// One kernel for all parameters that are updated alike. After all other merges.
  void bundleUpdates();

  OpSet updates; ///< arithmetic on elements that state alone takes; the same ops serve for parameters of all shapes
  OpSet sums;    ///< of all elements of gradients, with their terms

private:
  using OpList = llvm::SmallVector<mlir::Operation *>;
  void findUpdates();
  llvm::MapVector<mlir::Value, OpList> sumsByGradient() const;
  void bundleAlike(llvm::ArrayRef<OpList> members);
  bool joinMember(llvm::ArrayRef<mlir::Operation *> ops, unsigned into);

  mlir::Block &block;
  GroupGraph &graph;
};

} // namespace mpt

#endif // MPT_LIB_FUSION_BUNDLES_H
