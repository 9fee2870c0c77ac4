// SPDX-License-Identifier: Apache-2.0
// Conversions of operands to 8 bits, with scales, and the division of a product by the scales.
#ifndef MPT_PRECISION_OPERANDCASTS_H
#define MPT_PRECISION_OPERANDCASTS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Precision/RoundingCasts.h"

namespace mpt {

/// The largest magnitude in `x`, in f32, which has to be finite for a step to count.
mlir::Value largestMagnitude(GraphBuilder &b, mlir::Value x);

/// The scale by which the magnitude `top` becomes the largest one of `format`; `previous` where that is no number.
mlir::Value tensorScale(GraphBuilder &b, mlir::Value top, mlir::Value previous, mlir::Type format,
                        const TensorScaling &options);

/// `x` in the 8-bit type `type`, multiplied by `scale` before (null: by none).
mlir::Value toNarrowOperand(GraphBuilder &b, RoundingCasts &casts, mlir::Value x, mlir::Value scale, mlir::Type type,
                            RoundingMode mode);

/// Makes the result of the contraction `op` f32; others read it divided by `scales`, in its own type.
void takeScalesOut(mlir::Operation *op, llvm::ArrayRef<mlir::Value> scales, RoundingCasts &casts);

} // namespace mpt

#endif // MPT_PRECISION_OPERANDCASTS_H
