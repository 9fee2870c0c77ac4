// SPDX-License-Identifier: Apache-2.0
// The effect of reduced precision on an op: its numeric class, and the operands and results that must stay wide.
#ifndef MPT_INTERFACES_PRECISIONSEMANTICS_TD
#define MPT_INTERFACES_PRECISIONSEMANTICS_TD

include "mlir/IR/OpBase.td"

def PrecisionSemantics : OpInterface<"PrecisionSemantics"> {
  let cppNamespace = "::mpt";
  let description = [{
    Numeric behaviour that the precision passes decide by. Stated in ODS for every core op; a pass never looks at op names.
    Integer and boolean values are outside its scope.
  }];
  let methods = [
    InterfaceMethod<"How reduced precision affects the op's result.", "::mpt::NumericClass", "getNumericClass">,
    InterfaceMethod<"Operand `index` must be FP32 or wider whatever the policy says (statistics, affine parameters).",
      "bool", "isWideOperand", (ins "unsigned":$index), [{}], [{ return false; }]>,
    InterfaceMethod<"Result `index` is FP32 or wider whatever the policy says (statistics, losses).",
      "bool", "isWideResult", (ins "unsigned":$index), [{}], [{ return false; }]>,
    InterfaceMethod<"True when operands and results must share one float type (elementwise arithmetic).",
      "bool", "needsUniformType", (ins), [{}], [{ return false; }]>
  ];
}

#endif
