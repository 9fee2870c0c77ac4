// SPDX-License-Identifier: Apache-2.0
// Windows of convolution and pooling: their output extents.
#ifndef MPT_LIB_DIALECT_MPT_WINDOWS_H
#define MPT_LIB_DIALECT_MPT_WINDOWS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

/// Kernel extents, strides, dilations and pads, one a spatial dimension.
struct SlidingWindow {
  llvm::ArrayRef<int64_t> kernel, strides, dilations, low, high;
};

/// Output extents of sliding `window` over the spatial extents `in`; fails when an attribute has the wrong length or an
/// output would be empty.
llvm::LogicalResult slide(std::optional<mlir::Location> loc, llvm::ArrayRef<int64_t> in, const SlidingWindow &window,
                          llvm::SmallVectorImpl<int64_t> &out);

} // namespace mpt

#endif // MPT_LIB_DIALECT_MPT_WINDOWS_H
