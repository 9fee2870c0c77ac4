// SPDX-License-Identifier: Apache-2.0
// Where the gradients are in a graph that updates its parameters with operators of its own.
#ifndef MPT_AUTODIFF_WRITTENUPDATES_H
#define MPT_AUTODIFF_WRITTENUPDATES_H

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// A state's new value.
struct NewValue {
  train::StateOp state;
  mlir::Value value;
};

/// For each of `parameters`, in their order, the value of `function` that is its gradient; null where none could be
/// told. `news` are the new values of all states, `loss` the value that training makes smaller, and `given` the
/// gradients of other parameters, which the file names.
///
/// The arithmetic of an optimizer on a gradient has any form, but all that it knows of the batch comes through the
/// gradient: of the values that every path from the batch to the new values of a parameter and its moments goes
/// through, the first of the parameter's shape is it. A number that several parameters share, such as the factor of
/// clipping by a norm, is no path. From there transposes, casts and numbers follow as far as they belong to the
/// backward pass: all but the last number before a parameter or an average takes the value up, which is a rate.
llvm::SmallVector<mlir::Value> gradientsOfUpdates(mlir::func::FuncOp function, mlir::Value loss,
                                                  llvm::ArrayRef<NewValue> parameters, llvm::ArrayRef<NewValue> news,
                                                  llvm::ArrayRef<mlir::Value> given);

} // namespace mpt

#endif // MPT_AUTODIFF_WRITTENUPDATES_H
