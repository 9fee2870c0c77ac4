// SPDX-License-Identifier: Apache-2.0
// Which ops of a function are computed together, each group by one kernel.
#ifndef MPT_FUSION_GROUPING_H
#define MPT_FUSION_GROUPING_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Fusion/KernelCapabilities.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Ops of one block that one kernel computes.
struct Group {
  llvm::SmallVector<mlir::Operation *> members; ///< operands come before their readers

  /// The member whose iteration space the kernel walks: a reduction where there is one, else the last op.
  mlir::Operation *root() const;
};

/// The groups of `function`'s fusible ops, in an order in which each finds its operands (see fusion-form's
/// description). Cheap ops are cloned for their readers first.
llvm::SmallVector<Group> groupOps(mlir::func::FuncOp function, const KernelCapabilities &kernels);
/// Every fusible op in a group of its own.
llvm::SmallVector<Group> separateOps(mlir::func::FuncOp function);

/// Makes an mpt.fusion of every group, each of which `report` gets, and orders the function's body.
void outlineGroups(mlir::func::FuncOp function, llvm::ArrayRef<Group> groups,
                   llvm::function_ref<void(FusionOp)> report);

} // namespace mpt

#endif // MPT_FUSION_GROUPING_H
