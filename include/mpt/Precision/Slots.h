// SPDX-License-Identifier: Apache-2.0
// Types that an op's operands and results may have, and ops that belong to the loss, gradients or updates alone.
#ifndef MPT_PRECISION_SLOTS_H
#define MPT_PRECISION_SLOTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace mpt {

/// True for values that a policy decides about: tensors of FP32 elements. FP64 and values that are narrow already stay.
bool isDecidable(mlir::Type type);
/// True when the op's float results may have another type than its operands.
bool hasFlexibleTypes(mlir::Operation *op);
/// The result of `function` that is its loss; null without one.
mlir::Value lossValue(mlir::func::FuncOp function);
/// Ops that compute the loss from the model's outputs, and the start of the backward pass.
llvm::DenseSet<mlir::Operation *> lossIsland(mlir::func::FuncOp function);
/// Ops of one type for all values from which only parameter gradients are made: sums over uses, reshapes, transposes.
llvm::DenseSet<mlir::Operation *> parameterGradientTail(mlir::func::FuncOp function);

/// Ops on parameters that only updates use, as norms for clipping: masters hold these, and narrow copies would be
/// another starting point.
llvm::DenseSet<mlir::Operation *> parameterUpdateTail(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_PRECISION_SLOTS_H
