// SPDX-License-Identifier: Apache-2.0
// In which order of dimensions an op wants its operands in memory, and writes its results. Attached by lib/Library.
#ifndef MPT_INTERFACES_LAYOUTPREFERENCE_TD
#define MPT_INTERFACES_LAYOUTPREFERENCE_TD

include "mlir/IR/OpBase.td"

def LayoutPreference : OpInterface<"LayoutPreference"> {
  let cppNamespace = "::mpt";
  let description = [{
    The op's part in choosing layouts: `wishLayouts` is asked of readers before makers, `giveLayouts` of makers before
    readers. An op without this interface takes any layout and writes row-major results.
  }];
  let methods = [
    InterfaceMethod<"Notes the orders in which the op wants its operands, given those that its results are wanted in.",
      "void", "wishLayouts", (ins "::mpt::LayoutChoice &":$choice), [{}], [{}]>,
    InterfaceMethod<"Notes the orders of the op's results, given the wishes for them and the orders of its operands.",
      "void", "giveLayouts", (ins "::mpt::LayoutChoice &":$choice), [{}], [{}]>,
    InterfaceMethod<"Results lie in buffers of their own; false for views, whose layout follows from their operand's.",
      "bool", "ownsResults", (ins), [{}], [{ return true; }]>
  ];
}

#endif
