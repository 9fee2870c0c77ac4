// SPDX-License-Identifier: Apache-2.0
// Conv family: convolution, pooling and resampling over N, C, spatial... tensors.
#ifndef MPT_DIALECT_MPT_CONVOPS_TD
#define MPT_DIALECT_MPT_CONVOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

defvar windowAttrs = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_low,
  DenseI64ArrayAttr:$pads_high);

def MPT_ConvOp : MPT_FlexibleOp<"conv", "Contraction"> {
  let summary = "grouped convolution (cross-correlation) of x [N, C, S...] with w [O, C/groups, K...]";
  let description = [{
    y[n, o, t...] = sum over c, k of x[n, g C/groups + c, t stride + k dilation - pad_low] * w[o, c, k], g the group of o;
    reads outside x are 0. C1: rank 3 to 5, equal ranks. C2: C = groups * w's second extent, O divisible by groups.
    C3: one entry a spatial dimension in every attribute. C4: every output extent is positive.
  }];
  let arguments = !con((ins MPT_Float:$x, MPT_Float:$w), windowAttrs,
    (ins I64Attr:$groups, OptionalAttr<MPT_NumericsAttr>:$numerics));
  let results = (outs MPT_Float:$y);
}
class MPT_ConvBackwardOp<string mnemonic, string a, string b> : MPT_Op<mnemonic, "Contraction"> {
  let arguments = !con(!dag(ins, [MPT_Float, MPT_Float], [a, b]), windowAttrs,
    (ins I64Attr:$groups, OptionalAttr<MPT_NumericsAttr>:$numerics));
  let results = (outs MPT_Float:$y);
  let hasVerifier = 1;
}
def MPT_ConvBackwardDataOp : MPT_ConvBackwardOp<"conv_backward_data", "dy", "w"> {
  let summary = "gradient of conv with respect to x; also transposed convolution";
  let description = [{The result type is conv's x. C1: conv of the result with w has dy's shape.}];
}
def MPT_ConvBackwardWeightsOp : MPT_ConvBackwardOp<"conv_backward_weights", "x", "dy"> {
  let summary = "gradient of conv with respect to w";
  let description = [{The result type is conv's w. C1: conv of x with the result has dy's shape.}];
}

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
def MPT_ResizeOp : MPT_Op<"resize", "Neutral"> {
  let summary = "separable resampling: along each listed axis a weighted sum of input samples";
  let description = [{
    For axis axes[a] with n outputs and t = taps[a] samples each: y[.., i, ..] = sum over j < t of weights[a][i t + j] *
    x[.., positions[a][i t + j], ..], axis after axis. The importer computes positions and weights from ONNX's modes
    (nearest has one tap, linear two, cubic four), so that the op and its adjoint need no modes.
  }];
  let arguments = (ins MPT_Float:$x, DenseI64ArrayAttr:$axes, DenseI64ArrayAttr:$taps, ArrayAttr:$positions, ArrayAttr:$weights);
  let results = (outs MPT_Float:$y);
  let hasVerifier = 1;
}
def MPT_ResizeBackwardOp : MPT_Op<"resize_backward", "Neutral"> {
  let summary = "adjoint of resize; the result type is resize's x";
  let arguments = (ins MPT_Float:$dy, DenseI64ArrayAttr:$axes, DenseI64ArrayAttr:$taps, ArrayAttr:$positions, ArrayAttr:$weights);
  let results = (outs MPT_Float:$dx);
}

#endif
