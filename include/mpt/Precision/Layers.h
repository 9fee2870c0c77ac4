// SPDX-License-Identifier: Apache-2.0
// Layers of a network: GEMMs and convolutions of the forward pass, with the contractions of their gradients.
#ifndef MPT_PRECISION_LAYERS_H
#define MPT_PRECISION_LAYERS_H

#include "mpt/Dialect/Policy/PolicyDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Which contractions of a function have the properties that policy.where names. A contraction with a gradient operand
/// belongs to the forward contraction of its location, or else, as in the backward pass of a file, of the weight that
/// it reads or makes the gradient of.
class Layers {
public:
  explicit Layers(mlir::func::FuncOp function);
  bool is(policy::Predicate predicate, mlir::Operation *op) const;

private:
  llvm::DenseMap<mlir::Operation *, unsigned> properties; ///< bit p: predicate p holds
};

} // namespace mpt

#endif // MPT_PRECISION_LAYERS_H
