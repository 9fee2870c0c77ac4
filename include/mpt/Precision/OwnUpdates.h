// SPDX-License-Identifier: Apache-2.0
// Updates that the gradient of one parameter decides about: the states that they may read, and how they count.
#ifndef MPT_PRECISION_OWNUPDATES_H
#define MPT_PRECISION_OWNUPDATES_H

#include "mpt/Precision/ScaleFlow.h"

namespace mpt {

/// The counter of a parameter's updates in steps that were skipped as a whole, which the step's own counter leaves out.
std::string extraUpdatesOf(llvm::StringRef parameter);

/// The writes of a function under a finite check by parameter.
class OwnUpdates {
public:
  OwnUpdates(mlir::func::FuncOp function, const States &states);

  /// The parameter whose gradient alone decides whether `write` takes place: its state's, where the function has a
  /// gradient of it. Null for states of the step as a whole.
  mlir::StringAttr ownerOf(train::WriteOp write) const;
  /// Refuses the value of a write that has an owner where it also hangs on another gradient, or on a state that goes by
  /// the step as a whole, other than through the number of the step and the learning rate. An error at the write.
  llvm::LogicalResult verify(train::WriteOp write) const;
  /// Operands of updates by `parameter`'s gradient that are the number of the step.
  llvm::SmallVector<mlir::OpOperand *> countsOf(mlir::StringAttr parameter) const;

private:
  enum class Reads { own, count, foreign };
  struct Source {
    Reads kind = Reads::own;
    mlir::StringAttr state; ///< that is foreign
  };
  mlir::StringAttr parameterOf(mlir::StringAttr state) const;
  Source sourceOf(mlir::Value value, mlir::StringAttr parameter) const;

  mlir::Block *body; ///< of the function
  const States &states;
  llvm::DenseSet<mlir::StringAttr> updated;                   ///< parameters with a gradient
  llvm::DenseSet<mlir::StringAttr> written;                   ///< states
  llvm::DenseMap<mlir::Value, mlir::StringAttr> behind;       ///< parameter whose gradient a value hangs on
  llvm::DenseMap<mlir::Value, mlir::StringAttr> behindOthers; ///< a second one, where there are several
};

} // namespace mpt

#endif // MPT_PRECISION_OWNUPDATES_H
