// SPDX-License-Identifier: Apache-2.0
// Demands of indices and labels on the arguments of a function that they are taken from.
#ifndef MPT_DIALECT_MPT_INDICES_H
#define MPT_DIALECT_MPT_INDICES_H

#include "mpt/Interfaces/IndexOperands.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Elements of an argument, as a box in its row-major elements, that must be in one of some ranges.
struct IndexDemand {
  unsigned argument;
  std::string node; ///< name of the first node that demands it
  int64_t offset;
  llvm::SmallVector<int64_t> shape, strides;
  IndexSet legal;
};

/// The demands of every op with an operand of indices that follows from arguments through views, casts, arithmetic with
/// constants, and selections by comparisons with constants. Indices that are computed otherwise demand nothing, nor do
/// indices that are in range whatever the argument holds.
std::vector<IndexDemand> indexDemandsOf(mlir::func::FuncOp function);

/// Attaches IndexOperands.
void registerIndexModels(mlir::DialectRegistry &registry);

} // namespace mpt

#endif // MPT_DIALECT_MPT_INDICES_H
