// SPDX-License-Identifier: Apache-2.0
// Ops that read or write where an operand says. Attached by lib/Dialect/MPT.
#ifndef MPT_INTERFACES_INDEXOPERANDS_TD
#define MPT_INTERFACES_INDEXOPERANDS_TD

include "mlir/IR/OpBase.td"

def IndexOperands : OpInterface<"IndexOperands"> {
  let cppNamespace = "::mpt";
  let description = [{
    An op with an operand of indices or labels, of which not every integer has a meaning. Kernels bring others into range, so
    that memory is safe; whoever gives them is to get an error.
  }];
  let methods = [
    InterfaceMethod<"The operand that holds the indices.", "::mlir::Value", "getIndexOperand">,
    InterfaceMethod<"What an index may be: one set for all, or one a position along the operand's last dimension.",
      "::llvm::SmallVector<::mpt::IndexSet>", "getLegalIndices">
  ];
}

#endif
