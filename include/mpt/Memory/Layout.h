// SPDX-License-Identifier: Apache-2.0
// Physical layouts of static tensors: dimension orders, strides, and the buffer types that carry them.
#ifndef MPT_MEMORY_LAYOUT_H
#define MPT_MEMORY_LAYOUT_H

#include "mpt/Interfaces/LayoutPreference.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace mpt::memory {

using Sizes = llvm::SmallVector<int64_t, 6>;

/// Strides, in elements, of a dense buffer of `shape` in `order`.
Sizes denseStrides(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> order);
/// Static strides of a buffer type.
Sizes stridesOf(mlir::MemRefType type);
/// A buffer type of these strides; row-major strides give the type without a layout.
mlir::MemRefType bufferType(llvm::ArrayRef<int64_t> shape, mlir::Type element, llvm::ArrayRef<int64_t> strides);
mlir::MemRefType denseType(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> order);

/// The same element at the same address for every index: strides of extents of 1 do not count.
bool sameAddresses(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);
/// `type` is dense in `order`.
bool isDense(mlir::MemRefType type, llvm::ArrayRef<int64_t> order);

/// Strides that show the elements of `shape` with `strides`, taken in row-major order of the indices, under
/// `newShape`; nothing when no strides do.
std::optional<Sizes> reshapeStrides(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides,
                                    llvm::ArrayRef<int64_t> newShape);

/// Bytes of one element in memory: booleans take one, 8-bit floats one.
int64_t elementBytes(mlir::Type element);
int64_t elementCount(llvm::ArrayRef<int64_t> shape);
/// Bytes from the first to behind the last element of a buffer.
int64_t spanBytes(mlir::MemRefType type);

} // namespace mpt::memory

#endif // MPT_MEMORY_LAYOUT_H
