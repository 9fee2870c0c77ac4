// SPDX-License-Identifier: Apache-2.0
// Batch statistics that a convolution's call gathers on its way.
#ifndef MPT_MEMORY_STATISTICS_H
#define MPT_MEMORY_STATISTICS_H

#include "mpt/Dialect/RT/RTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt::memory {

/// Convolutions, and what stands for the sums that their calls leave.
using ChannelSums = llvm::DenseMap<mlir::Operation *, rt::ChannelSumsOp>;

/// Whether a library's fused convolution can leave sums of `summed`, 16-bit and large enough for another pass to cost
/// something, beside making it of `other` and a filter.
bool leavesSums(mlir::RankedTensorType summed, mlir::RankedTensorType other, mlir::Type filter, int64_t groups);
/// `value` before conversions between floats; with `widening`, before exact ones.
mlir::Value throughCasts(mlir::Value value, bool widening);

/// For a device: finds fusions that reduce a convolution's 16-bit result to the mean (or sum) and mean square of each
/// channel, and gives them the sums that the convolution's call can leave beside its result. In such a fusion each
/// reduction R becomes
///
///     select(sound, from the given sums, R)
///
/// where `sound` holds for a channel when the variance that the FP32 sums give keeps its digits (kSoundShare below).
/// Kernels compute R only where it does not (`mpt.guarded`). Sums that were not gathered are NaN, which
/// is never sound.
///
/// The results of the ops returned are sums and sums of squares.
ChannelSums gatherStatistics(mlir::func::FuncOp function);

/// The same for sums that batch norm's gradient wants of a gradient that a backward convolution makes, masked by the
/// ReLU behind the norm: of the masked gradient, and of its product with the normalized input, each times numbers by
/// channel. Every reader of the gradient masks it, so that the convolution may leave it masked. Reductions are guarded
/// by the sums being numbers. The ops returned have the convolution's result and the five parts of the norm (rt.conv)
/// as operands.
///
/// The library masks by the norm's result in FP32, kernels by what it is rounded to: they differ for results that round
/// to 0, or whose sign is that of a rounding.
ChannelSums gatherGradientSums(mlir::func::FuncOp function);

/// Both kinds.
ChannelSums gatherSums(mlir::func::FuncOp function);

inline constexpr size_t normParts = 5; ///< input, mean, 1/deviation, scale, shift

/// The least share of the mean square that the variance must be: E x^2 - (E x)^2 then loses at most 5 of the 24 bits of
/// the FP32 sums, and what is left exceeds the digits of 16-bit elements.
inline constexpr double kSoundShare = 1.0 / 32;

} // namespace mpt::memory

#endif // MPT_MEMORY_STATISTICS_H
