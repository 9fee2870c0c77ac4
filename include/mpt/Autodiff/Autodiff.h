// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation of functions of core ops.
#ifndef MPT_AUTODIFF_AUTODIFF_H
#define MPT_AUTODIFF_AUTODIFF_H

#include "mpt/Interfaces/Interfaces.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Attaches the gradient rules (Differentiable) and evaluation forms of the core ops.
void registerAutodiffModels(mlir::DialectRegistry &registry);

/// Called with each wanted value once its gradient is complete, at the first place where that holds.
using GradientCallback = llvm::function_ref<void(mlir::OpBuilder &, mlir::Value value, mlir::Value gradient)>;

/// Builds the gradients of the scalar `loss` with respect to the float values `wrt`, at `builder`'s insertion point,
/// which the ops of `function` that lead to `loss` dominate. Backward ops come in reverse order of their forward ops
/// and carry their locations. The result has one value an entry of `wrt`, of its type; null where `loss` does not
/// depend on it. The seed is a `train.scale_loss` of 1 by 1 with the unit attribute `mpt.seed`. Fails, with an error at
/// the op, when an op on the way has neither a gradient rule nor a decomposition.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> differentiate(mlir::func::FuncOp function, mlir::Value loss,
                                                              llvm::ArrayRef<mlir::Value> wrt, mlir::OpBuilder &builder,
                                                              GradientCallback completed = nullptr);

/// One of several losses, whose gradient starts at `weight`. Its seed's `mpt.seed` is `name`.
struct LossTerm {
  std::string name;
  mlir::Value value;
  double weight;
};
/// As above, for the weighted sum of `losses`, with a seed each.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> differentiate(mlir::func::FuncOp function,
                                                              llvm::ArrayRef<LossTerm> losses,
                                                              llvm::ArrayRef<mlir::Value> wrt, mlir::OpBuilder &builder,
                                                              GradientCallback completed = nullptr);

/// Differentiates one op: its rule, or else its decomposition, built at `builder`'s insertion point. Does nothing when
/// no gradient arrives or none is wanted.
mlir::LogicalResult differentiateOp(mlir::Operation *op, mlir::OpBuilder &builder, GradientMap &grads);

/// Differentiates one op through its decomposition even where it has a rule.
mlir::LogicalResult differentiateDecomposition(mlir::Operation *op, mlir::OpBuilder &builder, GradientMap &grads);

/// Erases ops without uses and effects, last to first; returns how many.
int64_t eraseDeadOps(mlir::func::FuncOp function);
/// The same, but keeps gradients, which nothing uses before there is an optimizer.
void eraseAllButGradients(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_AUTODIFF_AUTODIFF_H
