// SPDX-License-Identifier: Apache-2.0
// Interfaces that the precision layer attaches to ops.
#ifndef MPT_PRECISION_MODELS_H
#define MPT_PRECISION_MODELS_H

#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// Attaches GemmLike to core ops, PrecisionBoundary to train ops, and scale rules (GradientScale) to both.
void registerPrecisionModels(mlir::DialectRegistry &registry);
/// Attaches MeaningFlow to core ops and ONNX nodes.
void registerMeanings(mlir::DialectRegistry &registry);
/// Attaches Accumulates to the ops that sum.
void registerAccumulators(mlir::DialectRegistry &registry);

} // namespace mpt

#endif // MPT_PRECISION_MODELS_H
