// Batch statistics that a convolution's call gathers on its way.
#ifndef MPT_MEMORY_STATISTICS_H
#define MPT_MEMORY_STATISTICS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt::memory {

/// For a device: finds fusions that reduce a convolution's 16-bit result to the mean (or sum) and mean square of each
/// channel, and gives them the sums that the convolution's call can leave beside its result. In such a fusion each
/// reduction R becomes
///
///     select(sound, from the given sums, R)
///
/// where `sound` holds for a channel when the variance that the FP32 sums give keeps its digits (kSoundShare below).
/// Kernels compute R only where it does not (kGuardedAttr in GpuKernel.h). Sums that were not gathered are NaN, which
/// is never sound.
///
/// Returns, for each such convolution, an op whose two results stand for its sums and sums of squares.
llvm::DenseMap<mlir::Operation *, mlir::Operation *> gatherStatistics(mlir::func::FuncOp function);

/// The least share of the mean square that the variance must be: E x^2 - (E x)^2 then loses at most 5 of the 24 bits of
/// the FP32 sums, and what is left exceeds the digits of 16-bit elements.
inline constexpr double kSoundShare = 1.0 / 32;

} // namespace mpt::memory

#endif // MPT_MEMORY_STATISTICS_H
