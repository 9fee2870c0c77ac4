// SPDX-License-Identifier: Apache-2.0
// Composites that can be expressed in simpler core ops.
#ifndef MPT_INTERFACES_DECOMPOSABLE_TD
#define MPT_INTERFACES_DECOMPOSABLE_TD

include "mlir/IR/OpBase.td"

def Decomposable : OpInterface<"Decomposable"> {
  let cppNamespace = "::mpt";
  let description = [{
    A composite's meaning in simpler core ops, built at `builder`'s insertion point. Internal values are FP32 or wider where
    the op's definition says so. Gradients, targets and export inherit it where they have no rule of their own.
  }];
  let methods = [
    InterfaceMethod<"Builds the decomposition; one value a result.", "::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>",
      "decompose", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

#endif
