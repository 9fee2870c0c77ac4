// SPDX-License-Identifier: Apache-2.0
// Updates of states by fusions: the states that they replace, and the ops that each has to wait for.
#ifndef MPT_MEMORY_UPDATES_H
#define MPT_MEMORY_UPDATES_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

namespace mpt::memory {

/// States that a function leaves empty: their memory holds whatever is made of the old value until the function ends.
class EmptiedStates {
public:
  explicit EmptiedStates(mlir::func::FuncOp function);
  /// The state whose memory may hold `result`, which is computed from it and has its type, where the function writes a
  /// constant to the state. Null where there is none. Whether the maker reads the old value last is for the
  /// caller to find.
  mlir::FlatSymbolRefAttr lenderOf(mlir::OpResult result) const;

private:
  llvm::DenseSet<mlir::Attribute> states;
};

/// The updates of one function, in whatever order its ops are.
class Updates {
public:
  explicit Updates(mlir::func::FuncOp function);

  /// States whose memory the results of `fusion` take. Empty where it is no update: another op reads a result that is
  /// no small side result, such as a gradient's largest magnitude.
  llvm::SmallVector<mlir::Attribute> statesOf(FusionOp fusion) const;
  /// Fusions that compute a few bytes which `update` reads, such as the finite check of its gradient, in their order.
  static llvm::SetVector<FusionOp> gatesOf(FusionOp update);
  /// The last op that `update` has to wait for: the makers of its operands and of its gates', and the readers of the
  /// states' old values. Null where it waits for nothing.
  mlir::Operation *latestBefore(FusionOp update, llvm::ArrayRef<mlir::Attribute> states) const;
  /// An op that holds an update back.
  struct Blocker {
    FusionOp update;
    mlir::Operation *latest = nullptr, *between = nullptr;
  };
  /// For each update that is not directly behind the last op it waits for, the first op between them that takes memory
  /// or time of its own: no other update, nor a gate of one.
  llvm::SmallVector<Blocker> blockers(mlir::func::FuncOp function) const;

private:
  EmptiedStates emptied;
  llvm::DenseMap<mlir::Attribute, llvm::SmallVector<mlir::Operation *>> readers; ///< of the old value, by state
};

} // namespace mpt::memory

#endif // MPT_MEMORY_UPDATES_H
