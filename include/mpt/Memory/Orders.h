// SPDX-License-Identifier: Apache-2.0
// The one layout decision for a function: which dimension order each tensor value is stored in.
#ifndef MPT_MEMORY_ORDERS_H
#define MPT_MEMORY_ORDERS_H

#include "mpt/Memory/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt::memory {

/// Orders of the values that own a buffer (not of views, whose strides follow from their source).
class Orders {
public:
  /// Decides for every value of `function`. Convolutions' data are channels-last; elementwise kernels keep the layout
  /// of what they read; a value that reaches a reshape through transposes is stored in the order the reshape needs.
  explicit Orders(mlir::func::FuncOp function);

  /// The order that `value` is written in; row-major unless decided otherwise.
  Order of(mlir::Value value) const;

private:
  struct Wish {
    Order order;
    int priority; // 2: a convolution reads it; 1: a reshape does
  };
  void wish(mlir::Value value, Order order, int priority);
  void collectWishes(mlir::Operation *op);
  void decide(mlir::Operation *op);
  Order orderOfFusionResult(mlir::Operation *fusion, mlir::Value result) const;
  const Order *known(mlir::Value value) const;

  llvm::DenseMap<mlir::Value, Wish> wishes;
  llvm::DenseMap<mlir::Value, Order> orders;
};

} // namespace mpt::memory

#endif // MPT_MEMORY_ORDERS_H
