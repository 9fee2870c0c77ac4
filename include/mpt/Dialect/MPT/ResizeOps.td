// SPDX-License-Identifier: Apache-2.0
// Resize family: resampling along axes.
#ifndef MPT_DIALECT_MPT_RESIZEOPS_TD
#define MPT_DIALECT_MPT_RESIZEOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

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
