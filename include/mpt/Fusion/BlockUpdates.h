// SPDX-License-Identifier: Apache-2.0
// Updates of 8-bit optimizer states in the shape of their blocks.
#ifndef MPT_FUSION_BLOCKUPDATES_H
#define MPT_FUSION_BLOCKUPDATES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Moves arithmetic around mpt.encode_blocks and mpt.decode_blocks to a shape with a row a block, so that one kernel
/// finds the rows' scales and makes all that an update makes: reshapes would end it. Returns how many ops it moved.
int64_t shapeAsBlocks(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_FUSION_BLOCKUPDATES_H
