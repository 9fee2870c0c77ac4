// SPDX-License-Identifier: Apache-2.0
// Whether the seeds of a backward pass scale its gradients, and nothing else.
#ifndef MPT_LIB_AUTODIFF_SEEDCHECK_H
#define MPT_LIB_AUTODIFF_SEEDCHECK_H

#include "mpt/Interfaces/Linearity.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

bool isFloat(mlir::Value value);
OperandScale scaleOf(mlir::OpOperand &operand);
/// A constant of zeros, a multiple of everything.
bool isZero(mlir::Value value);

/// The first op that reads multiples of the seeds, or gives them on, otherwise than as a gradient does; null where all
/// fit. Values of `fixed` are no multiples.
mlir::Operation *checkSeeds(mlir::func::FuncOp function, llvm::ArrayRef<mlir::Value> fixed);

} // namespace mpt

#endif // MPT_LIB_AUTODIFF_SEEDCHECK_H
