// SPDX-License-Identifier: Apache-2.0
// Gather family: elements, slices and tuples picked by index.
#ifndef MPT_DIALECT_MPT_GATHEROPS_TD
#define MPT_DIALECT_MPT_GATHEROPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_GatherOp : MPT_InferredOp<"gather", "Movement"> {
  let summary = "slices of x along `axis` picked by `indices`, whose dimensions replace the axis; negative indices wrap";
  let arguments = (ins MPT_Number:$x, MPT_Int:$indices, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_GatherElementsOp : MPT_InferredOp<"gather_elements", "Movement"> {
  let summary = "y[i...] = x at i... with position `axis` replaced by indices[i...]; negative indices wrap";
  let arguments = (ins MPT_Number:$x, MPT_Int:$indices, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_GatherNDOp : MPT_InferredOp<"gather_nd", "Movement"> {
  let summary = "slices of x at the index tuples in the last dimension of `indices`, after batch_dims shared dimensions";
  let arguments = (ins MPT_Number:$x, MPT_Int:$indices, DefaultValuedAttr<I64Attr, "0">:$batch_dims);
  let results = (outs MPT_Number:$y);
}
def MPT_BucketizeOp : MPT_Op<"bucketize", "Pinned"> {
  let summary = "how many of the ascending `boundaries` are not above x, element by element; 0 for NaN";
  let description = [{
    C1: y has x's shape. C2: boundaries is a vector of one element less than a power of two, so that a search takes as many
    steps for each, and y counts up to all of them.
  }];
  let arguments = (ins MPT_Float:$x, MPT_Float:$boundaries);
  let results = (outs MPT_Int:$y);
  let hasVerifier = 1;
}

#endif
