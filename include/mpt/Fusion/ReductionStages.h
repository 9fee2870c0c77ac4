// SPDX-License-Identifier: Apache-2.0
// Reductions in the form that kernels are good at. Each function returns whether it rewrote the op, which is gone then.
#ifndef MPT_FUSION_REDUCTIONSTAGES_H
#define MPT_FUSION_REDUCTIONSTAGES_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

// ---- for kernels that share out units of work: one sum is one thread's

/// Partial results over blocks, then their reduction. The number of blocks follows from the shape alone.
bool splitInBlocks(ReduceOp op);

// ---- for kernels whose threads share one sum

/// Factors that repeat along the summed axes are multiplied with the sum, not with its terms: the gradient of a batch
/// norm adds up two things for scale and shift, and the same two for its input.
bool hoistFactors(ReduceOp op);
/// Mean and variance of FP32 `x` along `axes`: FP64 means of the elements and of their squares, for which `better` may
/// give other values. It gets the power.
std::pair<mlir::Value, mlir::Value> meanAndVariance(GraphBuilder &b, mlir::Value x, llvm::ArrayRef<int64_t> axes,
                                                    llvm::function_ref<mlir::Value(mlir::Value, unsigned)> better);
/// The variance E(x - E x)^2 of elements that one block cannot keep as E x^2 - (E x)^2 with FP64 sums of FP64 squares:
/// the digits that cancel out lie beyond FP32's unless the mean is 10^4 deviations away.
bool fuseMoments(ReduceOp variance);
/// The largest element of a kernel's result, row by row and then of the rows (where sums go down its columns, column by
/// column): the kernel can do the first. No bit changes.
bool splitExtremum(ReduceOp op);
/// Arithmetic on a reshaped tensor that a kernel makes or adds up is done on the tensor in the kernel's shape, where
/// nothing but calls and reductions to one scalar follow: it can be part of that kernel then, which a reshape would
/// end.
void moveBeforeReshapes(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_FUSION_REDUCTIONSTAGES_H
