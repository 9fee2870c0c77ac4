// SPDX-License-Identifier: Apache-2.0
// What an op does with the loss scale that a gradient carries. Attached by lib/Precision.
#ifndef MPT_INTERFACES_GRADIENTSCALE_TD
#define MPT_INTERFACES_GRADIENTSCALE_TD

include "mlir/IR/OpBase.td"

def GradientScale : OpInterface<"GradientScale"> {
  let cppNamespace = "::mpt";
  let description = [{
    For ops that add a loss scale, take it away, exchange it, or whose result is about gradients without being one. An op
    without this interface is linear in the gradients that it reads: its results carry their scale.
  }];
  let methods = [
    InterfaceMethod<[{The scales that all results carry, as the values that hold them, outermost last; nothing where any would
      fit (constants). `of` answers the same for an operand.}],
      "std::optional<::mpt::GradientScales>", "getResultScales",
      (ins "::mpt::GradientScalesOf":$of)>,
    InterfaceMethod<"Refuses operands with scales that the op does not take.", "::llvm::LogicalResult",
      "verifyOperandScales", (ins "::mpt::GradientScalesOf":$of), [{}], [{ return ::mlir::success(); }]>
  ];
}

#endif
