// SPDX-License-Identifier: Apache-2.0
// Gradients of values while a function is differentiated in reverse.
#ifndef MPT_INTERFACES_GRADIENTMAP_H
#define MPT_INTERFACES_GRADIENTMAP_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <functional>

namespace mpt {

/// The gradients that Differentiable::backward reads and writes. Gradients have the type of their value; several
/// contributions to one value are summed.
class GradientMap {
public:
  using Sum = std::function<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::Value, mlir::Value)>;
  /// `sum` builds the sum of two gradients of one type.
  explicit GradientMap(Sum sum) : sum(std::move(sum)) {}

  /// Gradient of `value`, or null where none arrives (it is zero).
  mlir::Value get(mlir::Value value) const { return gradients.lookup(value); }
  /// True when something trained depends on `value`, so that its gradient is needed.
  bool wants(mlir::Value value) const { return wanted.contains(value); }
  void want(mlir::Value value) { wanted.insert(value); }
  /// Adds a contribution to the gradient of `value`; ignored when it is not wanted or `gradient` is null.
  void add(mlir::OpBuilder &builder, mlir::Value value, mlir::Value gradient);

private:
  llvm::DenseMap<mlir::Value, mlir::Value> gradients;
  llvm::DenseSet<mlir::Value> wanted;
  Sum sum;
};

} // namespace mpt

#endif // MPT_INTERFACES_GRADIENTMAP_H
