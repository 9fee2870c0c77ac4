// SPDX-License-Identifier: Apache-2.0
// Stride arithmetic on static shapes.
#include "mpt/Memory/Layout.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

Sizes mpt::memory::denseStrides(ArrayRef<int64_t> shape, ArrayRef<int64_t> order) {
  Sizes strides(shape.size(), 1);
  int64_t stride = 1;
  for (int64_t d : llvm::reverse(order)) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1); // tensors without elements have strides too
  }
  return strides;
}

Sizes mpt::memory::stridesOf(MemRefType type) {
  Sizes strides;
  SmallVector<int64_t> found;
  int64_t offset;
  [[maybe_unused]] LogicalResult result = type.getStridesAndOffset(found, offset);
  assert(succeeded(result) && "buffers have strided layouts");
  strides.assign(found.begin(), found.end());
  return strides;
}

MemRefType mpt::memory::bufferType(ArrayRef<int64_t> shape, Type element, ArrayRef<int64_t> strides) {
  // Upstream has no strides for an identity layout over extents of 0, and so no pointer for it.
  bool isEmpty = llvm::is_contained(shape.drop_front(std::min<size_t>(shape.size(), 1)), 0);
  if (!isEmpty && strides == ArrayRef<int64_t>(denseStrides(shape, rowMajor(shape.size()))))
    return MemRefType::get(shape, element);
  return MemRefType::get(shape, element, StridedLayoutAttr::get(element.getContext(), 0, strides));
}

MemRefType mpt::memory::denseType(RankedTensorType type, ArrayRef<int64_t> order) {
  return bufferType(type.getShape(), type.getElementType(), denseStrides(type.getShape(), order));
}

bool mpt::memory::sameAddresses(ArrayRef<int64_t> shape, ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  for (auto [extent, x, y] : llvm::zip_equal(shape, a, b))
    if (extent > 1 && x != y)
      return false;
  return true;
}

bool mpt::memory::isDense(MemRefType type, ArrayRef<int64_t> order) {
  return sameAddresses(type.getShape(), stridesOf(type), denseStrides(type.getShape(), order));
}

std::optional<Sizes> mpt::memory::reshapeStrides(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides,
                                                 ArrayRef<int64_t> newShape) {
  if (llvm::is_contained(shape, 0))
    return denseStrides(newShape, rowMajor(newShape.size()));
  SmallVector<std::pair<int64_t, int64_t>> old; // extent and stride of the dimensions that matter
  for (auto [extent, stride] : llvm::zip_equal(shape, strides))
    if (extent != 1)
      old.emplace_back(extent, stride);
  Sizes result(newShape.size(), 1);
  size_t from = 0, to = 0;
  // Groups of old and new dimensions with equal products; each old group must be one run of memory.
  while (from < old.size() && to < newShape.size()) {
    size_t fromEnd = from + 1, toEnd = to + 1;
    int64_t oldCount = old[from].first, newCount = newShape[to];
    while (oldCount != newCount) {
      if (oldCount < newCount) {
        if (fromEnd == old.size())
          return std::nullopt;
        oldCount *= old[fromEnd++].first;
      } else {
        if (toEnd == newShape.size())
          return std::nullopt;
        newCount *= newShape[toEnd++];
      }
    }
    for (size_t i = from; i + 1 < fromEnd; ++i)
      if (old[i].second != old[i + 1].first * old[i + 1].second)
        return std::nullopt;
    int64_t stride = old[fromEnd - 1].second;
    for (size_t i = toEnd; i-- > to;) {
      result[i] = stride;
      stride *= newShape[i];
    }
    from = fromEnd;
    to = toEnd;
  }
  return result; // trailing new extents are all 1
}

int64_t mpt::memory::elementBytes(Type element) {
  return std::max<int64_t>(1, (element.getIntOrFloatBitWidth() + 7) / 8);
}

int64_t mpt::memory::elementCount(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

int64_t mpt::memory::spanBytes(MemRefType type) {
  int64_t last = 0;
  for (auto [extent, stride] : llvm::zip_equal(type.getShape(), stridesOf(type))) {
    if (extent == 0)
      return 0;
    last += (extent - 1) * stride;
  }
  return (last + 1) * elementBytes(type.getElementType());
}
