// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation of one op. Bodies are attached by lib/Autodiff.
#ifndef MPT_INTERFACES_DIFFERENTIABLE_TD
#define MPT_INTERFACES_DIFFERENTIABLE_TD

include "mlir/IR/OpBase.td"

def Differentiable : OpInterface<"Differentiable"> {
  let cppNamespace = "::mpt";
  let description = [{
    `backward` reads the gradients of the op's results from `grads` and adds the gradients of the operands that are wanted.
    New ops go to `builder`'s insertion point. An op without this interface is differentiated through `Decomposable`.
  }];
  let methods = [
    InterfaceMethod<"Adds operand gradients to `grads`.", "::llvm::LogicalResult", "backward",
      (ins "::mlir::OpBuilder &":$builder, "::mpt::GradientMap &":$grads)>
  ];
}

#endif
