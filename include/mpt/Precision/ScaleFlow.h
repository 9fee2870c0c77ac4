// SPDX-License-Identifier: Apache-2.0
// Which values of a training step carry which loss scale.
#ifndef MPT_PRECISION_SCALEFLOW_H
#define MPT_PRECISION_SCALEFLOW_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// The scales that each value carries, as the IR values that hold them: train.scale_loss adds one, train.unscale takes
/// it away, train.rescale exchanges it, and everything between them is linear in the gradient. Gradients that meet
/// carry the same scales. Constants other than the seed fit any. Statistics and scales made of gradients carry none.
class ScaleFlow {
public:
  using Scales = llvm::SmallVector<mlir::Value, 1>;

  explicit ScaleFlow(mlir::func::FuncOp function);
  /// Nothing for values that would fit any scale (constants, and what is made of them alone).
  std::optional<Scales> of(mlir::Value value) const;
  /// Operands of one op carry different scales.
  bool meets(mlir::Operation *op) const { return meetings.contains(op); }

  /// Both factors of a product carry a scale: the result carries neither.
  bool multiplies(mlir::Operation *op) const { return products.contains(op); }

private:
  llvm::DenseMap<mlir::Value, Scales> scales;
  llvm::DenseSet<mlir::Operation *> meetings, products;
};

} // namespace mpt

#endif // MPT_PRECISION_SCALEFLOW_H
