// SPDX-License-Identifier: Apache-2.0
// The role of ops in fusion; apart from the other interfaces because only fusion and memory use it.
#ifndef MPT_INTERFACES_FUSIONROLE_H
#define MPT_INTERFACES_FUSIONROLE_H

#include "mlir/IR/OpDefinition.h"

namespace mpt {

enum class FusionKind : uint8_t {
  Ordinary,  ///< elements of operands at (mostly) the same index
  View,      ///< no pass over memory: other strides of its operand, or memory that its operands write in parts
  Broadcast, ///< repeats a smaller operand: rematerialized by every reader
  Generator, ///< elements from their index alone: rematerialized by every reader
  Reduction  ///< results of many terms each: a kernel iterates over the terms
};

} // namespace mpt

#include "mpt/Interfaces/FusionRole.h.inc"

namespace mpt {

/// The kind that the op's FusionRole states; Ordinary without one, and for null.
FusionKind fusionKindOf(mlir::Operation *op);
inline bool isReduction(mlir::Operation *op) { return fusionKindOf(op) == FusionKind::Reduction; }
inline bool isBroadcast(mlir::Operation *op) { return fusionKindOf(op) == FusionKind::Broadcast; }
/// Whether the op's elements follow from few elements or none, so that every reader rematerializes them.
bool isRematerializedByReaders(mlir::Operation *op);
/// Whether `op` costs no pass over memory: memory-bufferize makes strides of it, or its operands write their parts.
bool isViewOp(mlir::Operation *op);
/// Whether `op` is a view of its only operand: the same elements at other strides.
bool isOperandView(mlir::Operation *op);

/// The most elements that every element of a kernel may read beside its own: scalars and keys of random streams.
inline constexpr int64_t fewElements = 4;
/// Whether `op` computes elements of `shape` that are the same wherever in the tensor they lie, so that a tensor of
/// another shape and as many elements would do: it reads operands of `shape` at its own index, beside operands of
/// few elements that all of them read, or repeats a scalar.
bool isFlat(mlir::Operation *op, llvm::ArrayRef<int64_t> shape);

} // namespace mpt

#endif // MPT_INTERFACES_FUSIONROLE_H
