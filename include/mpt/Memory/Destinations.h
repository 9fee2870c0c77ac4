// SPDX-License-Identifier: Apache-2.0
// Which results are written straight to the place where they are wanted, as far as tensors tell.
#ifndef MPT_MEMORY_DESTINATIONS_H
#define MPT_MEMORY_DESTINATIONS_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/Bufferizable.h"
#include "mpt/Interfaces/LayoutPreference.h"
#include "mpt/Memory/Updates.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace mpt::memory {

/// The broadcast that `op` is a fusion of and of nothing else; null for others. Its result needs no memory of its own:
/// it may be the operand's, shown with strides of 0, which whoever reads it reads.
BroadcastOp onlyBroadcast(mlir::Operation *op);

/// Whether the result of `op` (which may be null) may lie in its operand's memory: who reads it then reads the operand.
bool showsOperand(mlir::Operation *op);

/// A use that wants its operand at a place of its own, and the views between the operand's maker and the use, the one
/// that reads the maker's result first.
struct Destination {
  mlir::OpOperand *use;
  llvm::SmallVector<mlir::Operation *, 2> views;
};

/// Follows `use` back through views that show all of their operand to nobody else, to the value that some op makes.
/// `views` are the views on the way, the one that reads the value first.
mlir::Value makerOf(mlir::OpOperand &use, llvm::SmallVectorImpl<mlir::Operation *> &views);

/// The order that --library-choose-layouts has chosen for an op's result; row-major where it chose none.
Order layoutOf(mlir::Value result);

/// The place of every result of a function. Of the places that a result is wanted at, states come first (a copy of a
/// parameter costs more than one of an output), then outputs, then parts of concatenations; it gets the first one at
/// which nothing forbids to write it. Whether a kernel may write over its inputs is known only once there are kernels;
/// bufferization checks that.
class Destinations {
public:
  explicit Destinations(mlir::func::FuncOp function);

  /// The use whose place `result` is to be written at, or null.
  mlir::OpOperand *chosenFor(mlir::Value result);
  /// The state that lends its memory to `result` until the function ends (mpt/Memory/Updates.h), or null.
  mlir::FlatSymbolRefAttr lenderFor(mlir::OpResult result);

private:
  struct Choice {
    mlir::OpOperand *use = nullptr;
    Strided place;
  };
  void addCandidate(mlir::OpOperand &use);
  Choice choose(mlir::Value result);
  /// Why `result` cannot be written to `state`; empty where it can.
  llvm::StringRef whyNotState(mlir::Value result, mlir::Attribute state) const;
  /// How `result` lies at the place of `candidate`, if strides show it.
  std::optional<Strided> placeOf(const Destination &candidate);
  /// How the result of a concatenation lies.
  Strided wholeOf(mlir::Value result);

  llvm::MapVector<mlir::Value, llvm::SmallVector<Destination, 1>> candidates;
  llvm::DenseMap<mlir::Value, Choice> choices;
  llvm::DenseMap<mlir::Attribute, llvm::SmallVector<mlir::OpOperand *>> readers; // state to uses of its old value
  EmptiedStates emptied;
  llvm::DenseSet<mlir::Attribute> lent;
};

} // namespace mpt::memory

#endif // MPT_MEMORY_DESTINATIONS_H
