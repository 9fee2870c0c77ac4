// SPDX-License-Identifier: Apache-2.0
// Numbers that tensors are multiplied with, in the updates of a file.
#ifndef MPT_LIB_AUTODIFF_FACTORS_H
#define MPT_LIB_AUTODIFF_FACTORS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace mpt {

/// The ops that `value` is computed by.
llvm::DenseSet<mlir::Operation *> sliceOf(mlir::Value value);
/// A tensor of one element.
bool isOne(mlir::Value value);
/// The inputs and states of one element that `value` is computed from, without parameters: norms of these are factors
/// too.
llvm::DenseSet<mlir::Value> numbersBehind(mlir::Value value);
/// One number, whatever the shape.
bool isNumber(mlir::Value value);
/// A number before it was given a tensor's shape.
mlir::Value withoutShape(mlir::Value value);
/// The number that a constant holds everywhere.
std::optional<double> numberOf(mlir::Value value);
/// The number that `op` multiplies `value` with or divides it by; null for other ops.
mlir::Value factorOf(mlir::Operation *op, mlir::Value value);

} // namespace mpt

#endif // MPT_LIB_AUTODIFF_FACTORS_H
