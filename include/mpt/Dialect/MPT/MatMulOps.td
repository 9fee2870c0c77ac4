// SPDX-License-Identifier: Apache-2.0
// MatMul family: dense contractions.
#ifndef MPT_DIALECT_MPT_MATMULOPS_TD
#define MPT_DIALECT_MPT_MATMULOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_MatMulOp : MPT_FlexibleOp<"matmul", "Contraction"> {
  let summary = "batched GEMM";
  let description = [{
    y[b..., i, j] = sum over k of a[b..., i, k] * b[b..., k, j], each matrix transposed in its last two dimensions where
    its flag says so. C1: equal ranks of at least 2. C2: equal batch extents. C3: equal contracted extents.
  }];
  let arguments = (ins MPT_Float:$a, MPT_Float:$b, DefaultValuedAttr<BoolAttr, "false">:$transpose_a,
    DefaultValuedAttr<BoolAttr, "false">:$transpose_b, OptionalAttr<MPT_NumericsAttr>:$numerics);
  let results = (outs MPT_Float:$y);
}

#endif
