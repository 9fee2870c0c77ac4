// SPDX-License-Identifier: Apache-2.0
// How many products a contraction sums. Attached by lib/Precision.
#ifndef MPT_INTERFACES_CONTRACTION_TD
#define MPT_INTERFACES_CONTRACTION_TD

include "mlir/IR/OpBase.td"

def Contraction : OpInterface<"Contraction"> {
  let cppNamespace = "::mpt";
  let description = [{A sum of products of two operands: what layer-wise loss scaling must know of it.}];
  let methods = [
    InterfaceMethod<"Products that are summed to one element of the result; padding counts.", "int64_t", "getTermCount">
  ];
}

#endif
