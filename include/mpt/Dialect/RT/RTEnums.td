// SPDX-License-Identifier: Apache-2.0
// Enums of the rt dialect; apart because TableGen prints every enum that a file includes.
#ifndef MPT_DIALECT_RT_RTENUMS_TD
#define MPT_DIALECT_RT_RTENUMS_TD

include "mlir/IR/EnumAttr.td"

def RT_ConvKind : I32EnumAttr<"ConvKind", "which of the three tensors of a convolution a call makes", [
  I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"backward_data", 1>, I32EnumAttrCase<"backward_weights", 2>]> {
  let cppNamespace = "::mpt::rt";
  let genSpecializedAttr = 0;
}

#endif
