// SPDX-License-Identifier: Apache-2.0
// The accumulators of ops: running values that combine the elements of operands.
#ifndef MPT_DIALECT_MPT_ACCUMULATORS_H
#define MPT_DIALECT_MPT_ACCUMULATORS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

/// The attribute by which an op states its accumulator: inherent in GEMMs, convolutions and reductions.
inline constexpr llvm::StringLiteral kNumericsAttr = "numerics";

/// The numerics that `op` states; null where it states none.
NumericsAttr numericsOf(mlir::Operation *op);

/// The decomposition of `composite`. An accumulator wider than FP32, the default of its parts, is handed on.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> decomposeAccumulating(Decomposable composite, mlir::OpBuilder &builder);

} // namespace mpt

#endif // MPT_DIALECT_MPT_ACCUMULATORS_H
