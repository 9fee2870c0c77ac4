// SPDX-License-Identifier: Apache-2.0
// Ops at the edge of the graph whose types no policy decides. Attached by lib/Precision.
#ifndef MPT_INTERFACES_PRECISIONBOUNDARY_TD
#define MPT_INTERFACES_PRECISIONBOUNDARY_TD

include "mlir/IR/OpBase.td"

def PrecisionBoundary : OpInterface<"PrecisionBoundary"> {
  let cppNamespace = "::mpt";
  let description = [{
    For train ops that take values out of the graph: writes of state, parameter gradients, checks over all gradients. They
    have no numeric class; the precision solver reports the rule that they state.
  }];
  let methods = [
    InterfaceMethod<"Why the types of its operands are not the policy's.", "::llvm::StringRef", "getBoundaryRule">,
    InterfaceMethod<"It reads floats of any type exactly; else it takes f32.", "bool", "readsAnyType">
  ];
}

#endif
