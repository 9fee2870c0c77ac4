// SPDX-License-Identifier: Apache-2.0
// One step of a recurrent cell behind its GEMM, and its gradient before the GEMM, in elementwise ops. All values are
// [batch, hidden] of one wide type; gates are one value each, in the order of mpt.recurrence.
#ifndef MPT_DIALECT_MPT_RECURRENTCELLS_H
#define MPT_DIALECT_MPT_RECURRENTCELLS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

using CellValues = llvm::SmallVector<mlir::Value>;

// ---- forward. `x`: of the input; `s`: of the GEMM; `h`, `c`: state and cell state before the step.

/// i, o, f, c behind their activations, the new cell state, the new state.
CellValues lstmStep(GraphBuilder &b, mlir::ValueRange x, mlir::ValueRange s, mlir::Value c);
/// z, r, h behind their activations, the operand that r multiplies, the new state. `bias` is added to the last of `s`.
CellValues gruStep(GraphBuilder &b, mlir::ValueRange x, mlir::ValueRange s, mlir::Value bias, mlir::Value h);
/// Reset first: z, r, and r * h for the GEMM of the last gate.
CellValues gruGates(GraphBuilder &b, mlir::ValueRange x, mlir::ValueRange s, mlir::Value h);
/// Reset first: the last gate, the new state.
CellValues gruState(GraphBuilder &b, mlir::Value x, mlir::Value s, mlir::Value z, mlir::Value h);
/// The new state of cells tanh and relu.
mlir::Value plainStep(GraphBuilder &b, RecurrentCell cell, mlir::Value x, mlir::Value s);

// ---- backward. `d`: the gradient of the step's state; `gates`: saved; `before`: the state before the step.

/// Gradients of the four sums, and of the cell state before the step. `c`: the step's cell state, `dc`: its gradient
/// from the later steps.
CellValues lstmGradient(GraphBuilder &b, mlir::Value d, mlir::ValueRange gates, mlir::Value c, mlir::Value dc,
                        mlir::Value cellBefore);
/// Gradients of the three sums of x, of the operand of r, and of the state before the step without the GEMM's part.
CellValues gruGradient(GraphBuilder &b, mlir::Value d, mlir::ValueRange gates, mlir::Value before);
/// Reset first: the gradient of the last gate's sum.
mlir::Value gruLastGradient(GraphBuilder &b, mlir::Value d, mlir::ValueRange gates);
/// Reset first: gradients of the sums of z and r, and of the state before the step without their GEMM's part.
/// `dKept`: the gradient of r * state.
CellValues gruGatesGradient(GraphBuilder &b, mlir::Value d, mlir::ValueRange gates, mlir::Value before,
                            mlir::Value dKept);
/// The gradient of the sum of cells tanh and relu, whose state is `y`.
mlir::Value plainGradient(GraphBuilder &b, RecurrentCell cell, mlir::Value d, mlir::Value y);

} // namespace mpt

#endif // MPT_DIALECT_MPT_RECURRENTCELLS_H
