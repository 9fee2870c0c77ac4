// SPDX-License-Identifier: Apache-2.0
// How an op takes part in forming kernels beyond having a loop form. Attached by lib/Lowering/Models.
#ifndef MPT_INTERFACES_FUSIONROLE_TD
#define MPT_INTERFACES_FUSIONROLE_TD

include "mlir/IR/OpBase.td"

def FusionRole : OpInterface<"FusionRole"> {
  let cppNamespace = "::mpt";
  let description = [{
    For ops that are not computed element by element from operands at the same index: which of them need no kernel, cost
    nothing inside one, or decide its iteration space. An op without this interface is a kernel's ordinary member.
  }];
  let methods = [
    InterfaceMethod<"What the op is to the kernels around it.", "::mpt::FusionKind", "getFusionKind">
  ];
}

#endif
