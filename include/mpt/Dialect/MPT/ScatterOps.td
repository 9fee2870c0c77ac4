// SPDX-License-Identifier: Apache-2.0
// Scatter family: updates combined at indices.
#ifndef MPT_DIALECT_MPT_SCATTEROPS_TD
#define MPT_DIALECT_MPT_SCATTEROPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_ScatterAddOp : MPT_Op<"scatter_add", "Reduction"> {
  let summary = "adjoint of gather: zeros of the result type, plus each update slice at its index along `axis` (FP32 sums)";
  let arguments = (ins MPT_Int:$indices, MPT_Number:$updates, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_ScatterElementsOp : MPT_InferredOp<"scatter_elements", "Reduction"> {
  let summary = "data with updates[i...] combined at i... with position `axis` replaced by indices[i...]";
  let arguments = (ins MPT_Number:$data, MPT_Int:$indices, MPT_Number:$updates, I64Attr:$axis,
    DefaultValuedAttr<MPT_ScatterKindAttr, "::mpt::ScatterKind::assign">:$kind);
  let results = (outs MPT_Number:$y);
}
def MPT_ScatterNDOp : MPT_InferredOp<"scatter_nd", "Reduction"> {
  let summary = "data with update slices combined at the index tuples in the last dimension of `indices`";
  let arguments = (ins MPT_Number:$data, MPT_Int:$indices, MPT_Number:$updates,
    DefaultValuedAttr<I64Attr, "0">:$batch_dims, DefaultValuedAttr<MPT_ScatterKindAttr, "::mpt::ScatterKind::assign">:$kind);
  let results = (outs MPT_Number:$y);
}

#endif
