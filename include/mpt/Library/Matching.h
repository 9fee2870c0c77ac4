// SPDX-License-Identifier: Apache-2.0
// Helpers of patterns that form library calls: values through views, the order of ops, and how patterns are applied.
#ifndef MPT_LIBRARY_MATCHING_H
#define MPT_LIBRARY_MATCHING_H

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"

namespace mpt::library {

bool isF32Scalar(mlir::Value value);

/// `value` before the views that lead to it.
mlir::Value rootOf(mlir::Value value);
/// Adds the uses of `value`, and of views of it, that are no views themselves.
void collectUses(mlir::Value value, llvm::SmallVectorImpl<mlir::OpOperand *> &uses);

/// The op of kind `Op` that alone reads `value`; null if there is none.
template <typename Op> Op onlyReader(mlir::Value value) {
  return value.hasOneUse() ? llvm::dyn_cast<Op>(*value.user_begin()) : Op();
}

/// `value` can be read where `op` is. One that is made of nothing, as a parameter's read is, moves there if need be.
bool makeAvailable(mlir::Value value, mlir::Operation *op, mlir::RewriterBase &rewriter);
/// Erases `op` where nothing reads it, and ops that only it read.
void eraseIfDead(mlir::Operation *op, mlir::RewriterBase &rewriter);

/// Applies the patterns to `ops` alone, in their order, without folding; prints refusals for `flag`.
llvm::LogicalResult applyInOrder(llvm::SmallVector<mlir::Operation *> ops, mlir::RewritePatternSet patterns,
                                 const char *flag);
/// The same with one `Pattern`, made from the context and `arguments`, on the ops of kind `Op` of a function.
template <typename Op, typename Pattern, typename... Arguments>
llvm::LogicalResult applyInOrder(mlir::func::FuncOp function, const char *flag, Arguments &&...arguments) {
  llvm::SmallVector<mlir::Operation *> ops;
  for (Op op : function.getOps<Op>())
    ops.push_back(op);
  mlir::RewritePatternSet patterns(function.getContext());
  patterns.add<Pattern>(function.getContext(), std::forward<Arguments>(arguments)...);
  return applyInOrder(std::move(ops), std::move(patterns), flag);
}

/// A pattern that counts its rewrites.
template <typename Op> struct CountingPattern : mlir::OpRewritePattern<Op> {
  CountingPattern(mlir::MLIRContext *context, mlir::Pass::Statistic &count)
      : mlir::OpRewritePattern<Op>(context), count(count) {}
  mlir::Pass::Statistic &count;
};

} // namespace mpt::library

#endif // MPT_LIBRARY_MATCHING_H
