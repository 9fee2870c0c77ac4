// SPDX-License-Identifier: Apache-2.0
// Parts of every way to compute a reduction: the running value, its combination and its end.
#ifndef MPT_LOWERING_EMISSION_REDUCTIONS_H
#define MPT_LOWERING_EMISSION_REDUCTIONS_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

namespace mpt {

/// One running value: its start and its step. Long sums gather partial sums of `type` in totals of type `total`.
struct Accumulator {
  ReduceKind kind;
  mlir::Type type;
  mlir::Type total;
  bool isWord = false; ///< of integers of 64 bits without sign, which no wider type holds as others
  /// A sum of FP32 values with the error of every addition: twice as many lanes, sums and then errors. Added
  /// together they are exact while the values' magnitudes span less than 2^70 or so, and so have no order.
  bool exact = false;

  mlir::Value identity(ElementEmitter &e, mlir::Type type) const;
  mlir::Value combine(ElementEmitter &e, mlir::Value x, mlir::Value y) const;
  /// Where a sum starts, in `width` lanes.
  mlir::Value start(ElementEmitter &e, mlir::Type type, unsigned width) const;
  /// An exact sum of one element a lane.
  mlir::Value alone(ElementEmitter &e, mlir::Value y) const;
  /// The sum that an exact one stands for; others are it themselves.
  mlir::Value close(ElementEmitter &e, mlir::Value x) const;
  /// Halves folded onto each other until one lane is left.
  mlir::Value fold(ElementEmitter &e, mlir::Value x) const;
};

/// The type of running values of elements of type `element`: as `numerics` states, at least the computed one.
mlir::Type runningType(mlir::Type element, NumericsAttr numerics);
/// The running value of `op` in the type that its numerics ask for, at least the computed one.
Accumulator accumulatorOf(ReduceOp op);
/// The type of the 16-bit floats of which `op` chooses the largest or smallest, also by magnitude or where they were
/// widened; null elsewhere.
mlir::Type narrowExtreme(ReduceOp op);
/// A device's running value: largest and smallest 16-bit floats in their type, which it compares two at a time. Else as
/// accumulatorOf, FP32 sums in FP64: between threads, or from the first element on. An error in a mean is the same
/// for all that it is subtracted from, so that it grows in sums over them where roundings of single elements cancel
/// out.
Accumulator gatheringAccumulator(ReduceOp op, bool everyElement);
/// The result's element from the accumulated one: division for means, rounding.
mlir::Value finishReduction(ElementEmitter &e, ReduceOp op, mlir::Value value);
/// A running value as an element of type `element`, rounded once.
mlir::Value finishSum(ElementEmitter &e, mlir::Value sum, mlir::Type element);
/// Dimensions of the operand that the result has, in order.
llvm::SmallVector<int64_t> keptAxes(ReduceOp op);
int64_t reducedExtent(ReduceOp op);
/// Product of the extents of `axes`.
int64_t extentOf(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes);
/// True when `user` is computed from `source`, in one block.
bool dependsOn(mlir::Operation *user, mlir::Operation *source);

} // namespace mpt

#endif // MPT_LOWERING_EMISSION_REDUCTIONS_H
