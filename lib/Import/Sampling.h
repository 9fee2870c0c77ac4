// SPDX-License-Identifier: Apache-2.0
// Images read at points that are computed at run time: grids, offsets, regions of interest.
#ifndef MPT_LIB_IMPORT_SAMPLING_H
#define MPT_LIB_IMPORT_SAMPLING_H

#include "Binder.h"

namespace mpt {

/// A sample along one axis for every point [batch, points]: its index (i64), its weight (none: 1), whether it counts
/// (none: it does, else it reads as 0).
struct Tap {
  mlir::Value index, weight, inside;
};
/// All samples along one axis that a point reads.
using AxisTaps = llvm::SmallVector<Tap>;

/// How the samples of a point are combined.
enum class Join { sum, max };

/// rows [batch, samples, channels], whose samples form a grid of `extents`, read at each combination of the axes' taps,
/// times their weights, summed or the largest: [batch, points, channels].
mlir::Value readSamples(Binder &b, mlir::Value rows, llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<AxisTaps> axes,
                        Join join = Join::sum);

/// The two samples around a position, weighted by nearness; those outside of the image read as 0.
AxisTaps linearTaps(Binder &b, mlir::Value position, int64_t extent);

/// x [N, C, ...] as rows [N, samples, C]: channels innermost, so that one place's are read together.
mlir::Value rowsOf(Binder &b, mlir::Value x);

} // namespace mpt

#endif // MPT_LIB_IMPORT_SAMPLING_H
