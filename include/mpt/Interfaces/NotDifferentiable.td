// SPDX-License-Identifier: Apache-2.0
// Ops that gradients never pass. Attached by lib/Autodiff.
#ifndef MPT_INTERFACES_NOTDIFFERENTIABLE_TD
#define MPT_INTERFACES_NOTDIFFERENTIABLE_TD

include "mlir/IR/OpBase.td"

def NotDifferentiable : OpInterface<"NotDifferentiable"> {
  let cppNamespace = "::mpt";
  let description = [{
    States that an op has no gradient rule on purpose. The coverage test wants every core op to have a gradient rule, a
    decomposition, or this.
  }];
  let methods = [
    InterfaceMethod<"Why, as a noun phrase.", "::llvm::StringRef", "whyNotDifferentiable">
  ];
}

#endif
