// SPDX-License-Identifier: Apache-2.0
// How an op's results follow the scale of its operands. Attached by lib/Autodiff.
#ifndef MPT_INTERFACES_LINEARITY_TD
#define MPT_INTERFACES_LINEARITY_TD

include "mlir/IR/OpBase.td"

def Linearity : OpInterface<"Linearity"> {
  let cppNamespace = "::mpt";
  let description = [{
    For ops whose float results are multiplied by s when some operands are, s being positive. It tells where a backward
    pass that a file brings along begins: gradients are multiples of one seed. An op without this interface follows none
    of its operands.
  }];
  let methods = [
    InterfaceMethod<"What multiplying operand `index` does.", "::mpt::OperandScale", "getOperandScale",
      (ins "unsigned":$index)>
  ];
}

#endif
