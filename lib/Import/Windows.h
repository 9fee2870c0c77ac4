// SPDX-License-Identifier: Apache-2.0
// Windows of convolutions and pooling.
#ifndef MPT_LIB_IMPORT_WINDOWS_H
#define MPT_LIB_IMPORT_WINDOWS_H

#include "Binder.h"

namespace mpt {

/// Kernel extents, strides, dilations and pads, one a spatial axis.
struct Window {
  llvm::SmallVector<int64_t> kernel, strides, dilations, low, high;
};

/// Strides, dilations and pads of the node, with auto_pad and ceil_mode resolved for the spatial extents `in`.
llvm::FailureOr<Window> windowOf(Binder &b, llvm::ArrayRef<int64_t> in, llvm::ArrayRef<int64_t> kernel);

} // namespace mpt

#endif // MPT_LIB_IMPORT_WINDOWS_H
