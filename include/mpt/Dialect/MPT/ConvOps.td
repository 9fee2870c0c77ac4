// SPDX-License-Identifier: Apache-2.0
// Conv family: convolution over N, C, spatial... tensors, and its gradients.
#ifndef MPT_DIALECT_MPT_CONVOPS_TD
#define MPT_DIALECT_MPT_CONVOPS_TD

include "mpt/Dialect/MPT/WindowAttributes.td"

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

#endif
