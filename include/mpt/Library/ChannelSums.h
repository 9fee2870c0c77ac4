// SPDX-License-Identifier: Apache-2.0
// Convolutions whose library call leaves sums by channel beside its result.
#ifndef MPT_LIBRARY_CHANNELSUMS_H
#define MPT_LIBRARY_CHANNELSUMS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

/// Why no library's fused convolution leaves sums of `summed` beside making it of `other` and a filter of element type
/// `filter`, in channels of multiples of `unit`; empty where one does. `summed` has to be of 16 bits, and large enough
/// for another pass over it to cost something.
std::string whyNoChannelSums(mlir::RankedTensorType summed, mlir::RankedTensorType other, mlir::Type filter,
                             int64_t groups, int64_t unit);

/// `value` before conversions between floats; with `widening`, before exact ones alone.
mlir::Value throughCasts(mlir::Value value, bool widening);

/// Makes `sum`, which a convolution's call leaves, an operand of `fusion`. Returns its block argument, cast to FP64 at
/// the place of `builder`, in the body.
mlir::Value takeSum(FusionOp fusion, mlir::Value sum, mlir::OpBuilder &builder);

/// Replaces the result of `reduce` at its readers by `known` where `sound` holds. Kernels then make the reduction in
/// need alone.
void guardReduction(ReduceOp reduce, mlir::Value sound, mlir::Value known, mlir::OpBuilder &builder);

} // namespace mpt

#endif // MPT_LIBRARY_CHANNELSUMS_H
