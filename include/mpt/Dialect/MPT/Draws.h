// SPDX-License-Identifier: Apache-2.0
// Ops that draw random numbers: their key and their stream.
#ifndef MPT_DIALECT_MPT_DRAWS_H
#define MPT_DIALECT_MPT_DRAWS_H

#include "mlir/IR/Operation.h"

namespace mpt {

/// Attribute of an op that draws: which of the generator's streams it takes, an i64 below 2^16.
inline constexpr llvm::StringLiteral kStreamOfDraws = "stream";

/// The key ([seed, step], tensor<2xi64>) of an op that draws random numbers: its last operand, where it has a stream.
/// Null where it draws none.
mlir::OpOperand *keyOf(mlir::Operation *op);

} // namespace mpt

#endif // MPT_DIALECT_MPT_DRAWS_H
