// SPDX-License-Identifier: Apache-2.0
// Accumulators of contractions and reductions.
#ifndef MPT_PRECISION_NUMERICS_H
#define MPT_PRECISION_NUMERICS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

/// The inherent attribute by which an op states its accumulator.
inline constexpr llvm::StringLiteral kNumericsAttr = "numerics";

struct Accumulation {
  mlir::Type in, out;  ///< float element types of the inputs and the result
  NumericsAttr stated; ///< null when the op does not say
};
/// Nothing for ops that accumulate no floats or have no `numerics` attribute.
std::optional<Accumulation> accumulationOf(mlir::Operation *op);
/// The float type of most bits; for different ones of as many bits, the next wider type, which holds both.
mlir::Type widest(llvm::ArrayRef<mlir::Type> types);
/// True for float types of fewer bits than `than`.
bool isNarrower(mlir::Type type, mlir::Type than);

} // namespace mpt

#endif // MPT_PRECISION_NUMERICS_H
