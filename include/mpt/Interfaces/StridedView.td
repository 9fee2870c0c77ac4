// SPDX-License-Identifier: Apache-2.0
// How an op shows its operand's elements where strides allow. Attached by lib/Memory.
#ifndef MPT_INTERFACES_STRIDEDVIEW_TD
#define MPT_INTERFACES_STRIDEDVIEW_TD

include "mlir/IR/OpBase.td"

def StridedView : OpInterface<"StridedView"> {
  let cppNamespace = "::mpt";
  let description = [{An op of one operand and one result whose result's elements are its operand's, in another shape.}];
  let methods = [
    InterfaceMethod<"What the result is of an operand that lies as `source`; nothing where no strides show it.",
      "::std::optional<::mpt::Strided>", "viewOf", (ins "const ::mpt::Strided &":$source)>,
    InterfaceMethod<"How the operand lies when the result lies as `view`, so that whoever writes the one writes the other; "
      "nothing where no strides show it, or where the result leaves elements of the operand out.",
      "::std::optional<::mpt::Strided>", "sourceOf", (ins "const ::mpt::Strided &":$view)>,
    InterfaceMethod<"The result shows every element of the operand.", "bool", "showsAll", (ins), [{}], [{ return true; }]>
  ];
}

#endif
