// SPDX-License-Identifier: Apache-2.0
// How much a tensor of the fusion stage holds.
#ifndef MPT_FUSION_SIZES_H
#define MPT_FUSION_SIZES_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

/// Elements of a tensor of static shape.
inline int64_t countOf(mlir::Value value) { return tensorType(value).getNumElements(); }
/// Its bytes; elements narrower than a byte take one.
inline int64_t bytesOf(mlir::Value value) {
  return countOf(value) * std::max<int64_t>(1, tensorType(value).getElementTypeBitWidth() / 8);
}

} // namespace mpt

#endif // MPT_FUSION_SIZES_H
