// SPDX-License-Identifier: Apache-2.0
// Names of values that stay the same when a module is compiled under another policy.
#ifndef MPT_DIALECT_MPT_VALUEKEYS_H
#define MPT_DIALECT_MPT_VALUEKEYS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt {

/// Name of the ONNX node that `loc` carries, or empty.
llvm::StringRef nodeName(mlir::Location loc);

/// Keys of the float values that the ops of a module's functions compute: "function|node|op|occurrence|result", where
/// occurrence counts the ops of that node and kind in the function. Casts have none and are not counted, so a value has
/// one key under every policy.
class ValueKeys {
public:
  explicit ValueKeys(mlir::ModuleOp module);
  /// Empty for casts, ops without float results and ops inside other ops.
  std::string of(mlir::OpResult value) const;

private:
  llvm::DenseMap<mlir::Operation *, std::string> prefixes;
};

} // namespace mpt

#endif // MPT_DIALECT_MPT_VALUEKEYS_H
