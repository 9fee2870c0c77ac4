// SPDX-License-Identifier: Apache-2.0
// Which ops of a training step make up the backward pass and the update.
#ifndef MPT_FUSION_BACKWARD_H
#define MPT_FUSION_BACKWARD_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace mpt {

/// Ops that wait for a library call of the backward pass: all of it behind the gradient of the loss, and updates.
llvm::DenseSet<mlir::Operation *> backwardOps(mlir::func::FuncOp function);

/// Adds to the ops of the backward pass the rematerialized ones, and ops that it alone reads. Reductions
/// wait as the few values that they make: the largest magnitude of an activation goes with the activation, though the
/// next scale is late.
void addLateOps(mlir::Block &block, llvm::DenseSet<mlir::Operation *> &late);

/// Whether `op` rounds a value that readers widen again: for the backward pass it waits in the form of fewer bytes.
bool storesFewerBytes(mlir::Operation *op);

} // namespace mpt

#endif // MPT_FUSION_BACKWARD_H
