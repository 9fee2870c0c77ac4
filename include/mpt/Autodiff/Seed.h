// SPDX-License-Identifier: Apache-2.0
// Where a backward pass that was not made here begins.
#ifndef MPT_AUTODIFF_SEED_H
#define MPT_AUTODIFF_SEED_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Marks where the gradients of `function` (its train.gradient ops) begin, so that loss scaling finds it: each place
/// gets a `train.scale_loss` by 1 with the unit attribute `mpt.seed`. Multiplying by it multiplies every gradient and
/// none of `fixed` (the loss, new statistics). Where `function` has such ops already, they are the seed and are checked
/// only.
///
/// Files say nothing of seeds, and exporters fold them into constants. So a seed is found by the linearity of ops
/// (Linearity.td): backwards from the gradients, each value that must be a multiple of it is followed to constants, or
/// to values of the forward pass, where it begins. Where only one of two factors can be one, the one is followed whose
/// beginning reaches more gradients. Of the constants that a place offers, a scalar is taken before a tensor.
///
/// Returns null, or the op where the chain breaks: a gradient is not proportional to a seed, or becomes so only after a
/// GEMM or convolution that a scale should have protected. Then nothing is marked.
mlir::Operation *markSeeds(mlir::func::FuncOp function, llvm::ArrayRef<mlir::Value> fixed);

} // namespace mpt

#endif // MPT_AUTODIFF_SEED_H
