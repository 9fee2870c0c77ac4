// SPDX-License-Identifier: Apache-2.0
// Gradients of a recurrence's weights, from the results of mpt.recurrence_backward.
#ifndef MPT_DIALECT_MPT_RECURRENTGRADIENTS_H
#define MPT_DIALECT_MPT_RECURRENTGRADIENTS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

/// `x` [steps, batch, n] as a matrix [steps * batch, n].
mlir::Value flattenSteps(GraphBuilder &b, mlir::Value x);
/// The states before each step, [steps, batch, hidden]: `y` moved on by one, with `h0` [batch, hidden] before the
/// first.
mlir::Value statesBefore(GraphBuilder &b, mlir::Value y, mlir::Value h0, bool reverse);
/// dr [G hidden, hidden] in one GEMM over all steps. `kept` [steps, batch, hidden] is r * state, which a GRU saves
/// whose reset comes first; null otherwise.
mlir::Value recurrentWeightsGradient(GraphBuilder &b, RecurrenceBackwardOp backward, mlir::Value kept);

} // namespace mpt

#endif // MPT_DIALECT_MPT_RECURRENTGRADIENTS_H
