// SPDX-License-Identifier: Apache-2.0
// Enums of the library dialect; apart because TableGen prints every enum that a file includes.
#ifndef MPT_DIALECT_LIBRARY_LIBRARYENUMS_TD
#define MPT_DIALECT_LIBRARY_LIBRARYENUMS_TD

include "mlir/IR/EnumAttr.td"

class Library_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mpt::library";
  let genSpecializedAttr = 0;
}

def Library_Activation : Library_Enum<"Activation", "function that a GEMM applies before it stores its result", [
  I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"relu", 1>, I32EnumAttrCase<"gelu_tanh", 2>,
  I32EnumAttrCase<"gelu_tanh_gradient", 3>]>;
def Library_GemmSum : Library_Enum<"GemmSum", "matrix of a GEMM that the call also sums to a vector", [
  I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"a", 1>, I32EnumAttrCase<"b", 2>, I32EnumAttrCase<"d", 3>]>;
def Library_ConvKind : Library_Enum<"ConvKind", "tensor of a convolution that a call makes of the other two", [
  I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"backward_data", 1>, I32EnumAttrCase<"backward_weights", 2>]>;

#endif
