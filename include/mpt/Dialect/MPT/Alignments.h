// SPDX-License-Identifier: Apache-2.0
// One step of mpt.alignments and of its gradient. Values are [batch, states] of one wide type, and `open` is [batch].
#ifndef MPT_DIALECT_MPT_ALIGNMENTS_H
#define MPT_DIALECT_MPT_ALIGNMENTS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

/// The logarithm of zero. Not -infinity: differences of these stay numbers, and so do their gradients.
inline constexpr double kNever = -1e30;

/// States before the first step: all is in the first one, from where a step leads to the first blank or label.
mlir::Value alignmentStart(GraphBuilder &b, mlir::RankedTensorType type);
/// States after a step whose emissions are `emission`. States below `kNever` before it count as that.
mlir::Value alignmentStep(GraphBuilder &b, mlir::Value alpha, mlir::Value emission, mlir::Value skips,
                          mlir::Value open);
/// The gradient of the states `alpha` before a step, from `gradient` of the states after it.
mlir::Value alignmentGradient(GraphBuilder &b, mlir::Value gradient, mlir::Value alpha, mlir::Value skips,
                              mlir::Value open);

} // namespace mpt

#endif // MPT_DIALECT_MPT_ALIGNMENTS_H
