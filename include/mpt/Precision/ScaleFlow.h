// SPDX-License-Identifier: Apache-2.0
// Which values of a training step carry which loss scale.
#ifndef MPT_PRECISION_SCALEFLOW_H
#define MPT_PRECISION_SCALEFLOW_H

#include "mpt/Interfaces/GradientScale.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// The scales that each value carries. Ops that change them say so (GradientScale.td); everything between them is
/// linear in the gradient. Gradients that meet carry the same scales. Constants other than the seed fit any.
class ScaleFlow {
public:
  explicit ScaleFlow(mlir::func::FuncOp function);
  /// Nothing for values that would fit any scale (constants, and what is made of them alone).
  std::optional<GradientScales> of(mlir::Value value) const;
  /// Operands of one op carry different scales.
  bool meets(mlir::Operation *op) const { return meetings.contains(op); }
  /// Both operands of a GEMM carry a scale: the result carries neither.
  bool multiplies(mlir::Operation *op) const { return multiplications.contains(op); }

private:
  std::optional<GradientScales> resultScales(mlir::Operation *op);
  /// What gradients among the operands carry; notes where they differ and where two of them are multiplied.
  std::optional<GradientScales> throughLinear(mlir::Operation *op);

  llvm::DenseMap<mlir::Value, GradientScales> scales;
  llvm::DenseSet<mlir::Operation *> meetings, multiplications;
};

} // namespace mpt

#endif // MPT_PRECISION_SCALEFLOW_H
