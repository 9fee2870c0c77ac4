// SPDX-License-Identifier: Apache-2.0
// How loss scales go through an op, and whether it checks or spreads non-finite values. Attached by lib/Precision.
#ifndef MPT_INTERFACES_GRADIENTSCALE_TD
#define MPT_INTERFACES_GRADIENTSCALE_TD

include "mlir/IR/OpBase.td"

def GradientScale : OpInterface<"GradientScale"> {
  let cppNamespace = "::mpt";
  let description = [{
    The scale rule of an op: how its results scale with each operand (docs/scale-types.md). Every op of a step has one;
    precision-verify refuses an op without it.
  }];
  let methods = [
    InterfaceMethod<"Sets the scale types of results that are not unscaled; refuses operands that the op does not take.",
      "void", "inferScales", (ins "::mpt::ScaleInference &":$inference)>,
    InterfaceMethod<"Operands that the op uses as scales: each is one from here on, whatever it is made of.",
      "::llvm::SmallVector<::mlir::Value, 2>", "getScaleOperands", (ins), [{}], [{ return {}; }]>,
    InterfaceMethod<"Results that are scales by what the op is: where it is lowered, they are marked (`train.scale`).",
      "::mlir::ResultRange", "getMadeScales", (ins), [{}], [{ return $_op->getResults().take_front(0); }]>,
    InterfaceMethod<"The op's only result says whether all elements of all operands are finite.",
      "bool", "checksFinite", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<[{Wherever an element of an operand is not finite, some element of a result is not finite either: a
      finite result proves finite operands.}],
      "bool", "spreadsNonFinite", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<"The scalar i1 result, as far as it follows from what is known of the operands.",
      "::mpt::Flag", "evaluateFlag", (ins "::llvm::ArrayRef<::mpt::Flag>":$operands), [{}], [{ return std::nullopt; }]>
  ];
}

#endif
