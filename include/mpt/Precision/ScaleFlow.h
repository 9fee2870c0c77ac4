// Which values of a training step carry the loss scale.
#ifndef MPT_PRECISION_SCALEFLOW_H
#define MPT_PRECISION_SCALEFLOW_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// The power of the loss scale in each value: train.scale_loss adds one, train.unscale takes one away, and everything
/// between them is linear in the gradient. Constants other than the seed carry any power. Layer-wise scales need one
/// power a scale here; so far there is one scale.
class ScaleFlow {
public:
  explicit ScaleFlow(mlir::func::FuncOp function);
  /// Nothing for values that would fit any power (constants, and what is made of them alone).
  std::optional<int> powerOf(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::Value, int> powers;
};

} // namespace mpt

#endif // MPT_PRECISION_SCALEFLOW_H
