// SPDX-License-Identifier: Apache-2.0
// Pool family: maxima and means of windows over N, C, spatial... tensors.
#ifndef MPT_DIALECT_MPT_POOLOPS_TD
#define MPT_DIALECT_MPT_POOLOPS_TD

include "mpt/Dialect/MPT/WindowAttributes.td"

def MPT_MaxPoolOp : MPT_InferredOp<"max_pool", "Movement"> {
  let summary = "largest value of each window, and where it stood";
  let description = [{
    `indices` (i32) are positions in the flattened spatial extents of the input plane; the first of equal values wins.
    Padding never wins.
  }];
  let arguments = !con((ins MPT_Float:$x, DenseI64ArrayAttr:$kernel), windowAttrs);
  let results = (outs MPT_Float:$y, MPT_Int:$indices);
}
def MPT_MaxPoolBackwardOp : MPT_Op<"max_pool_backward", "Movement"> {
  let summary = "adds each dy at its window's position; the result type is max_pool's x";
  let arguments = !con((ins MPT_Float:$dy, MPT_Int:$indices, DenseI64ArrayAttr:$kernel), windowAttrs);
  let results = (outs MPT_Float:$dx);
}
def MPT_AvgPoolOp : MPT_InferredOp<"avg_pool", "Neutral"> {
  let summary = "mean of each window (FP32 sums); padding counts as zeros only with count_include_pad";
  let arguments = !con((ins MPT_Float:$x, DenseI64ArrayAttr:$kernel), windowAttrs,
    (ins DefaultValuedAttr<BoolAttr, "false">:$count_include_pad));
  let results = (outs MPT_Float:$y);
}
def MPT_AvgPoolBackwardOp : MPT_Op<"avg_pool_backward", "Neutral"> {
  let summary = "adjoint of avg_pool; the result type is avg_pool's x";
  let arguments = !con((ins MPT_Float:$dy, DenseI64ArrayAttr:$kernel), windowAttrs,
    (ins DefaultValuedAttr<BoolAttr, "false">:$count_include_pad));
  let results = (outs MPT_Float:$dx);
}

#endif
