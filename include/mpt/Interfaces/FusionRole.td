// SPDX-License-Identifier: Apache-2.0
// How an op takes part in forming kernels beyond having a loop form. Attached by lib/Lowering.
#ifndef MPT_INTERFACES_FUSIONROLE_TD
#define MPT_INTERFACES_FUSIONROLE_TD

include "mlir/IR/OpBase.td"

def FusionRole : OpInterface<"FusionRole"> {
  let cppNamespace = "::mpt";
  let description = [{
    For ops that move elements without computing any: which of them need no kernel, and which cost nothing inside one. An op
    without this interface is a kernel's ordinary member.
  }];
  let methods = [
    InterfaceMethod<"Needs no pass over memory: a view of its operand, or memory that its operands write in parts.", "bool",
      "isView">,
    InterfaceMethod<"Reads less than it makes, so that every reader makes its elements again.", "bool", "isMadeAgain">
  ];
}

#endif
