// SPDX-License-Identifier: Apache-2.0
// Values that the finite checks of a function prove finite where a condition holds.
#ifndef MPT_PRECISION_FINITECHECKS_H
#define MPT_PRECISION_FINITECHECKS_H

#include "mpt/Interfaces/GradientScale.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Flags of a function as logic over its finite checks. Three-valued: a flag that is not known stays unknown.
class FiniteChecks {
public:
  /// The known results of checks, by op.
  using Known = llvm::DenseMap<mlir::Operation *, bool>;

  explicit FiniteChecks(mlir::func::FuncOp function);
  /// The checks with operands: the others hold always.
  llvm::ArrayRef<mlir::Operation *> getChecks() const { return checks; }
  /// A check has this value among its operands.
  bool looksAt(mlir::Value value) const { return operands.contains(value); }
  Flag evaluate(mlir::Value flag, const Known &known) const;
  /// All checks hold, or all but `failing`.
  Known allHold(mlir::Operation *failing = nullptr) const;
  /// Values that are finite wherever `condition` holds.
  const llvm::DenseSet<mlir::Value> &provenBy(mlir::Value condition);

private:
  Flag evaluate(mlir::Value flag, const Known &known, llvm::DenseMap<mlir::Value, Flag> &done) const;

  llvm::SmallVector<mlir::Operation *> checks;
  llvm::DenseSet<mlir::Value> operands;
  llvm::DenseMap<mlir::Value, llvm::DenseSet<mlir::Value>> proven;
};

} // namespace mpt

#endif // MPT_PRECISION_FINITECHECKS_H
