// SPDX-License-Identifier: Apache-2.0
// Matrix multiplications and convolutions as implicit ones. Attached by lib/Precision.
#ifndef MPT_INTERFACES_GEMMLIKE_TD
#define MPT_INTERFACES_GEMMLIKE_TD

include "mlir/IR/OpBase.td"

def GemmLike : OpInterface<"GemmLike"> {
  let cppNamespace = "::mpt";
  let description = [{
    Each element of the result is an inner product of two operands: a GEMM of M×K by K×N, or a convolution as an implicit GEMM.
    Linear in each of the two operands. The numeric class `contraction` is wider: it holds ONNX operators and composites too.
  }];
  let methods = [
    InterfaceMethod<"K, the length of each inner product, in terms; those that padding makes zero count.", "int64_t",
      "getReductionLength">,
    InterfaceMethod<"Terms of an inner product that no padding makes zero, in the mean over the result's elements.", "double",
      "getMeanTerms", (ins), "", "return static_cast<double>($_op.getReductionLength());">
  ];
}

#endif
