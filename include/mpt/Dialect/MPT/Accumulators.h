// SPDX-License-Identifier: Apache-2.0
// What an op says of the running values in which its operands' elements meet.
#ifndef MPT_DIALECT_MPT_ACCUMULATORS_H
#define MPT_DIALECT_MPT_ACCUMULATORS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

/// The attribute by which an op states its accumulator: inherent in GEMMs, convolutions and reductions.
inline constexpr llvm::StringLiteral kNumericsAttr = "numerics";

/// What `op` states; null where it does not say.
NumericsAttr numericsOf(mlir::Operation *op);

/// What `composite` decomposes to. An accumulator wider than FP32, the default of what it is made of, is handed on.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> decomposeAccumulating(Decomposable composite, mlir::OpBuilder &builder);

} // namespace mpt

#endif // MPT_DIALECT_MPT_ACCUMULATORS_H
