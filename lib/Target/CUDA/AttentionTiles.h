// SPDX-License-Identifier: Apache-2.0
// Kernels of attention in tiles, one a form (mpt-c/attention_tiles.hpp).
#ifndef MPT_LIB_TARGET_CUDA_ATTENTIONTILES_H
#define MPT_LIB_TARGET_CUDA_ATTENTIONTILES_H

#include "mpt-c/attention_tiles.hpp"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mpt::cuda {

/// Makes the kernel `tile.name()`. `isLarge`: some tensor has elements that indices of 32 bits do not reach.
mlir::func::FuncOp makeAttentionTile(mlir::OpBuilder &builder, mlir::Location loc, const attention::Tile &tile,
                                     bool isLarge);

/// The same kernel for sm_90a, by `wgmma`: forward kernels alone.
mlir::func::FuncOp makeWarpgroupAttention(mlir::OpBuilder &builder, mlir::Location loc, const attention::Tile &tile,
                                          bool isLarge);

/// log x of FP32, for normal x.
mlir::Value logarithm(mlir::ImplicitLocOpBuilder &b, mlir::Value x);

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_ATTENTIONTILES_H
