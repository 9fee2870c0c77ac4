// SPDX-License-Identifier: Apache-2.0
// Questions about single ops that the parts of grouping share.
#ifndef MPT_LIB_FUSION_OPKINDS_H
#define MPT_LIB_FUSION_OPKINDS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

inline constexpr int64_t smallSpace = 4096;     ///< elements that one thread reduces as part of scalar arithmetic
inline constexpr int64_t longReduction = 32768; ///< elements that are worth a second stage
inline constexpr int64_t largePass = 65536;     ///< elements that are worth a pass of their own on a device

/// Whether `op` is a constant. False for null.
bool isConstant(mlir::Operation *op);
/// Whether `op` is a constant of equal elements, which every reader clones. False for null.
bool isSplat(mlir::Operation *op);
/// The constant's elements where they are equal; null where `op` is something else.
mlir::SplatElementsAttr splatOf(mlir::Operation *op);
/// Whether `op` can be part of a kernel: it has a loop form, and is neither a view nor a table of constants.
bool isFusible(mlir::Operation *op);
/// Whether `op` is a library call: computed by neither kernels nor views, from operands.
bool isLibraryCall(mlir::Operation *op);
/// Whether `op` is one of many sums along the contiguous axes of a large tensor.
bool isRowSum(mlir::Operation *op);

} // namespace mpt

#endif // MPT_LIB_FUSION_OPKINDS_H
