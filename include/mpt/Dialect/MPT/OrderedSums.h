// SPDX-License-Identifier: Apache-2.0
// --batch-invariant in the IR: an entry of the module's manifest, which gives an order to the sums of each contraction
// by its operands' types.
#ifndef MPT_DIALECT_MPT_ORDEREDSUMS_H
#define MPT_DIALECT_MPT_ORDEREDSUMS_H

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// Asks that no sum of `module` depends on the batch, on threads or on vectors.
void orderSums(mlir::ModuleOp module);
/// True in a module of which that was asked.
bool hasOrderedSums(mlir::Operation *op);

/// The order of an FP32 sum of products.
enum class SumOrder {
  OneChain, ///< one fused multiply-add after the other, from 0
  TwoChains ///< as matrix tiles take products of BF16 (mpt/Support/TwoChains.h)
};
/// The order in such modules, by the types in which operands are multiplied.
inline SumOrder sumOrderOf(mlir::Type a, mlir::Type b) {
  return a.isBF16() && b.isBF16() ? SumOrder::TwoChains : SumOrder::OneChain;
}
/// The same of a convolution of so many groups, and channels in one: each kernel position has whole blocks of products.
inline SumOrder sumOrderOf(mlir::Type x, mlir::Type w, int64_t groups, int64_t channels) {
  return groups == 1 && channels % 32 == 0 ? sumOrderOf(x, w) : SumOrder::OneChain;
}

} // namespace mpt

#endif // MPT_DIALECT_MPT_ORDEREDSUMS_H
