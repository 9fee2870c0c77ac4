// SPDX-License-Identifier: Apache-2.0
// Optimizers: one parameter's update. Attached by lib/Lowering.
#ifndef MPT_INTERFACES_OPTIMIZERUPDATE_TD
#define MPT_INTERFACES_OPTIMIZERUPDATE_TD

include "mlir/IR/OpBase.td"

def OptimizerUpdate : OpInterface<"OptimizerUpdate"> {
  let cppNamespace = "::mpt";
  let description = [{
    Operands are a parameter, its gradient, the learning rate (a scalar), and what else the rule needs; the first result
    is the new parameter, and the others are the new slots.
  }];
  let methods = [
    InterfaceMethod<"The operand that is the learning rate.", "::mlir::OpOperand &", "getRateMutable">,
    InterfaceMethod<"Whether an element of the results depends on the scalars and on elements at its position alone.",
                    "bool", "isElementwise">,
    InterfaceMethod<"Whether `slot` is a sum or an average of squares, which is never negative.", "bool", "holdsSquares",
                    (ins "::mlir::Value":$slot)>
  ];
}

#endif
