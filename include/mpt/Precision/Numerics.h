// SPDX-License-Identifier: Apache-2.0
// Accumulators of contractions and reductions.
#ifndef MPT_PRECISION_NUMERICS_H
#define MPT_PRECISION_NUMERICS_H

#include "mpt/Dialect/MPT/Accumulators.h"

namespace mpt {

struct Accumulation {
  mlir::Type in, out;  ///< float element types of the inputs and the result
  NumericsAttr stated; ///< null when the op does not say
};
/// Nothing for ops that accumulate no floats (interface Accumulates).
std::optional<Accumulation> accumulationOf(mlir::Operation *op);
/// An error at `op` where it accumulates in less than `accumulator`, reads narrower floats without an accumulator type
/// (where `stated` asks for one), or rounds its sum to less than its result.
llvm::LogicalResult verifyAccumulator(mlir::Operation *op, mlir::Type accumulator, bool stated);
/// The float type of most bits; for different ones of as many bits, the next wider type, which holds both.
mlir::Type widest(llvm::ArrayRef<mlir::Type> types);
/// True for float types of fewer bits than `than`.
bool isNarrower(mlir::Type type, mlir::Type than);

} // namespace mpt

#endif // MPT_PRECISION_NUMERICS_H
