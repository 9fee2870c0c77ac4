// SPDX-License-Identifier: Apache-2.0
// An op's form on buffers. Attached by lib/Memory.
#ifndef MPT_INTERFACES_BUFFERIZABLE_TD
#define MPT_INTERFACES_BUFFERIZABLE_TD

include "mlir/IR/OpBase.td"

def Bufferizable : OpInterface<"Bufferizable"> {
  let cppNamespace = "::mpt";
  let description = [{What an op on tensors becomes on buffers.}];
  let methods = [
    InterfaceMethod<"Builds the op's form on buffers and names the buffers of its results. Reports what it cannot do.",
      "::llvm::LogicalResult", "bufferize", (ins "::mpt::memory::BufferizationState &":$state)>,
    InterfaceMethod<"Where else than in buffers of their own the op can write its results.", "::mpt::WritesTo", "writesTo",
      (ins), [{}], [{ return ::mpt::WritesTo::Own; }]>
  ];
}

def PlacesOperands : OpInterface<"PlacesOperands"> {
  let cppNamespace = "::mpt";
  let description = [{
    An op that wants its operands at places in memory of its own: in a state, in an output, in its result. Who writes them there
    saves a copy.
  }];
  let methods = [
    InterfaceMethod<"What kind of memory the places are in.", "::mpt::PlaceKind", "getPlaceKind">,
    InterfaceMethod<"How the place of operand `operand` lies in memory, where the op's result lies as `whole`.",
      "::mpt::Strided", "placeOf", (ins "unsigned":$operand, "const ::mpt::Strided &":$whole)>,
    InterfaceMethod<"The place of operand `operand`.", "::mlir::Value", "bufferFor",
      (ins "unsigned":$operand, "::mpt::memory::BufferizationState &":$state)>
  ];
}

#endif
