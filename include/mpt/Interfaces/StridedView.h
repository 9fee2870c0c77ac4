// SPDX-License-Identifier: Apache-2.0
// Tensors as they lie in memory, and ops that show one under other strides.
#ifndef MPT_INTERFACES_STRIDEDVIEW_H
#define MPT_INTERFACES_STRIDEDVIEW_H

#include "mlir/IR/OpDefinition.h"

#include <optional>

namespace mpt {

/// Extents, strides and offset of a tensor in a buffer, all in elements.
struct Strided {
  llvm::SmallVector<int64_t, 6> shape, strides;
  int64_t offset = 0;
};

} // namespace mpt

#include "mpt/Interfaces/StridedView.h.inc"

#endif // MPT_INTERFACES_STRIDEDVIEW_H
