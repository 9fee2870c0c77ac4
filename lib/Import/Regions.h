// SPDX-License-Identifier: Apache-2.0
// Pooling over regions of interest of detection networks, and the choice among boxes.
#ifndef MPT_LIB_IMPORT_REGIONS_H
#define MPT_LIB_IMPORT_REGIONS_H

#include "Binder.h"

namespace mpt {

/// X [N, C, H, W], regions [R, 4] as x1, y1, x2, y2, and the image of each region [R]: [R, C, height, width].
llvm::LogicalResult importRoiAlign(Binder &b);
/// X [N, C, H, W] and regions [R, 5] as image, x1, y1, x2, y2: [R, C, height, width].
llvm::LogicalResult importMaxRoiPool(Binder &b);
/// Of constant boxes [N, B, 4] and scores [N, classes, B], the boxes that overlap no better one: [chosen, 3].
llvm::LogicalResult importNonMaxSuppression(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_REGIONS_H
