// SPDX-License-Identifier: Apache-2.0
// The grouping of ops into kernels: what fusion-form's parts share.
#ifndef MPT_FUSION_GROUPING_H
#define MPT_FUSION_GROUPING_H

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Fusion/Backward.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

inline constexpr int64_t fewElements = 4; ///< numbers and keys that all elements read

bool isSplat(mlir::Operation *op);
bool isFusible(mlir::Operation *op);

/// Groups of one block's ops, each a kernel at the end: see fusion-form's description.
class Grouping {
public:
  Grouping(mlir::func::FuncOp function, bool device)
      : block(function.getBody().front()), device(device), late(backwardOps(function)) {}

  /// `separate`: every op stays a group of its own.
  void run(bool separate);
  /// Makes a fusion of every group, each of which `report` gets.
  void outline(llvm::function_ref<void(FusionOp)> report);

private:
  void sink(llvm::MutableArrayRef<mlir::Operation *> fusions);
  struct Group {
    llvm::SmallVector<mlir::Operation *> ops; ///< in block order
  };
  void repeatCheapOps();
  void findLate();
  void findRowTerms();
  bool joinRowGradient(ReduceOp sum);
  bool joinAll(llvm::ArrayRef<mlir::Operation *> wanted);
  void findUpdates();
  void shareReaders(mlir::Value value);
  std::string signatureOf(const Group &group, llvm::SetVector<mlir::Value> &operands);
  void bundleUpdates();
  bool isPlain(mlir::Operation *op, llvm::ArrayRef<int64_t> shape);
  void bundleSums();
  bool mixesRecomputed(llvm::ArrayRef<mlir::Operation *> ops) const;
  bool tryMerge(unsigned a, unsigned b);
  bool shareElements(const Group &a, const Group &b);
  bool feedsBroadcasts(mlir::Operation *op, const llvm::DenseSet<mlir::Operation *> &members);
  bool isLegal(llvm::ArrayRef<mlir::Operation *> ops, const llvm::DenseSet<mlir::Operation *> &members);
  bool order(unsigned a, unsigned b);
  bool leaves(mlir::Value value, const llvm::DenseSet<mlir::Operation *> &members) {
    return llvm::any_of(value.getUsers(), [&](mlir::Operation *user) { return !members.contains(user); });
  }

  mlir::Block &block;
  const bool device;
  llvm::DenseSet<mlir::Operation *> updates;  ///< arithmetic on elements that state alone takes
  llvm::DenseSet<mlir::Operation *> sums;     ///< of all elements of gradients, with what they add up: in bundles
  llvm::DenseSet<mlir::Operation *> rowTerms; ///< on a device: arithmetic on elements that sums of rows add up
  llvm::DenseSet<mlir::Operation *> late;     ///< ops of the backward pass, and all that only they read
  llvm::DenseMap<mlir::Operation *, unsigned> groupOf, position;
  llvm::SmallVector<Group> groups; ///< one for each op at first, fusible or not; merging empties one
  /// A topological order of the groups, kept by every merge: rank[g] is g's place in sequence.
  llvm::SmallVector<unsigned> rank, sequence;
  /// Sizes with which a pair of groups was refused: until one grows, it is refused again.
  llvm::DenseMap<std::pair<unsigned, unsigned>, std::pair<size_t, size_t>> refused;
};

} // namespace mpt

#endif // MPT_FUSION_GROUPING_H
