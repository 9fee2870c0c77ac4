// SPDX-License-Identifier: Apache-2.0
// The shape and element type of a core value, in short forms. Shapes are static.
#ifndef MPT_DIALECT_MPT_TENSORTYPES_H
#define MPT_DIALECT_MPT_TENSORTYPES_H

#include "mpt/Dialect/MPT/GraphBuilder.h" // tensorType

namespace mpt {

inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return tensorType(value).getShape(); }
inline int64_t rankOf(mlir::Value value) { return tensorType(value).getRank(); }
inline mlir::Type elementOf(mlir::Value value) { return tensorType(value).getElementType(); }
/// Number of elements.
inline int64_t countOf(mlir::Value value) { return tensorType(value).getNumElements(); }
/// Bytes of an element in memory: those narrower than a byte take one.
inline int64_t bytesOf(mlir::Type element) { return (element.getIntOrFloatBitWidth() + 7) / 8; }
/// Bytes of all elements.
inline int64_t bytesOf(mlir::Value value) { return countOf(value) * bytesOf(elementOf(value)); }

} // namespace mpt

#endif // MPT_DIALECT_MPT_TENSORTYPES_H
