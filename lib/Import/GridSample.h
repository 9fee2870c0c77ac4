// SPDX-License-Identifier: Apache-2.0
// Images read at the points of a grid, and grids that matrices make.
#ifndef MPT_LIB_IMPORT_GRIDSAMPLE_H
#define MPT_LIB_IMPORT_GRIDSAMPLE_H

#include "Binder.h"

namespace mpt {

/// x [N, C, spatial...] and grid [N, out..., r], whose last axis counts the spatial axes from the last to the first.
llvm::LogicalResult importGridSample(Binder &b);
/// Positions from -1 to 1 along each axis, times a matrix each image.
llvm::LogicalResult importAffineGrid(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_GRIDSAMPLE_H
