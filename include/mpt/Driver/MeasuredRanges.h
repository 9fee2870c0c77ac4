// SPDX-License-Identifier: Apache-2.0
// Ranges that a compilation measures before it begins.
#ifndef MPT_DRIVER_MEASUREDRANGES_H
#define MPT_DRIVER_MEASUREDRANGES_H

#include "mpt/Driver/CompileOptions.h"

namespace mpt {

/// Where `options.data` is given: runs the steps that it has inputs for in FP32, writes their ranges beside the product
/// (to a temporary file where it is not a file or folder) and names them in `options.ranges`. Problems go to `log`.
llvm::LogicalResult measureRanges(CompileOptions &options, llvm::raw_ostream &log);

} // namespace mpt

#endif // MPT_DRIVER_MEASUREDRANGES_H
