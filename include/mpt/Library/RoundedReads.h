// SPDX-License-Identifier: Apache-2.0
// Which ops can read a wide parameter and round it by themselves, so that nobody keeps a narrow copy of it.
#ifndef MPT_LIBRARY_ROUNDEDREADS_H
#define MPT_LIBRARY_ROUNDEDREADS_H

#include "mlir/IR/OpDefinition.h"

namespace mpt::library {

/// Whether `value` is FP32, rounded to nearest in FP16 or BF16.
bool isRoundedF32(mlir::Value value);
/// Whether the reader of `use`, an operand rounded from FP32, does as well with the FP32 operand: a matrix
/// multiplication, which rounds while it packs, or an op that picks few elements, which are rounded behind it.
bool readsRounded(mlir::OpOperand &use);
/// The first reader of `rounded`, through views, that does not; null if all do.
mlir::Operation *readerOfCopy(mlir::Value rounded);

} // namespace mpt::library

#endif // MPT_LIBRARY_ROUNDEDREADS_H
