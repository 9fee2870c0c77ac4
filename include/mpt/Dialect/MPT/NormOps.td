// SPDX-License-Identifier: Apache-2.0
// Norm family: normalizations and softmax, with FP32 statistics and internals.
#ifndef MPT_DIALECT_MPT_NORMOPS_TD
#define MPT_DIALECT_MPT_NORMOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

class MPT_CompositeOp<string mnemonic, string wideOperands, string wideResults>
    : MPT_FlexibleOp<mnemonic, "Neutral", [Decomposable], wideOperands, wideResults> {
  let extraClassDeclaration = precisionMethods # [{
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>> decompose(::mlir::OpBuilder &builder);
  }];
}

def MPT_BatchNormOp : MPT_CompositeOp<"batch_norm", "0b110", "0b110"> {
  let summary = "batch normalization in training form over axis 1 of x [N, C, S...] (arXiv 1502.03167)";
  let description = [{
    y = (x - mean) / sqrt(variance + epsilon) * scale + bias; mean and variance (biased, FP32) over all axes but 1.
    C1: scale and bias have extent C.
  }];
  let arguments = (ins MPT_Float:$x, MPT_Float:$scale, MPT_Float:$bias, F64Attr:$epsilon);
  let results = (outs MPT_Float:$y, MPT_Float:$mean, MPT_Float:$variance);
}
def MPT_BatchNormBackwardOp : MPT_CompositeOp<"batch_norm_backward", "0b11100", "0b110"> {
  let summary = "gradients of batch_norm with respect to x, scale and bias";
  let arguments = (ins MPT_Float:$dy, MPT_Float:$x, MPT_Float:$scale, MPT_Float:$mean, MPT_Float:$variance, F64Attr:$epsilon);
  let results = (outs MPT_Float:$dx, MPT_Float:$dscale, MPT_Float:$dbias);
}
def MPT_LayerNormOp : MPT_CompositeOp<"layer_norm", "0b110", "0b110"> {
  let summary = "layer normalization over the axes from `axis` on (arXiv 1607.06450)";
  let description = [{
    y = (x - mean) inv_std scale + bias, inv_std = 1 / sqrt(var + epsilon). scale and bias have x's extents from `axis` on;
    mean and inv_std (FP32) have x's extents before `axis`.
  }];
  let arguments = (ins MPT_Float:$x, MPT_Float:$scale, MPT_Float:$bias, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs MPT_Float:$y, MPT_Float:$mean, MPT_Float:$inv_std);
}
def MPT_LayerNormBackwardOp : MPT_CompositeOp<"layer_norm_backward", "0b11100", "0b110"> {
  let summary = "gradients of layer_norm with respect to x, scale and bias";
  let arguments = (ins MPT_Float:$dy, MPT_Float:$x, MPT_Float:$scale, MPT_Float:$mean, MPT_Float:$inv_std, I64Attr:$axis);
  let results = (outs MPT_Float:$dx, MPT_Float:$dscale, MPT_Float:$dbias);
}
def MPT_RMSNormOp : MPT_CompositeOp<"rms_norm", "0b10", "0b10"> {
  let summary = "root-mean-square normalization over the axes from `axis` on (arXiv 1910.07467)";
  let description = [{y = x inv_rms scale, inv_rms = 1 / sqrt(mean(x^2) + epsilon), FP32, x's extents before `axis`.}];
  let arguments = (ins MPT_Float:$x, MPT_Float:$scale, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs MPT_Float:$y, MPT_Float:$inv_rms);
}
def MPT_RMSNormBackwardOp : MPT_CompositeOp<"rms_norm_backward", "0b1100", "0b10"> {
  let summary = "gradients of rms_norm with respect to x and scale";
  let arguments = (ins MPT_Float:$dy, MPT_Float:$x, MPT_Float:$scale, MPT_Float:$inv_rms, I64Attr:$axis);
  let results = (outs MPT_Float:$dx, MPT_Float:$dscale);
}
def MPT_GroupNormOp : MPT_CompositeOp<"group_norm", "0b110", "0b110"> {
  let summary = "group normalization of x [N, C, S...] in `groups` groups of channels (arXiv 1803.08494)";
  let description = [{scale and bias have extent C; mean and inv_std (FP32) are [N, groups]. C1: C is divisible by groups.}];
  let arguments = (ins MPT_Float:$x, MPT_Float:$scale, MPT_Float:$bias, I64Attr:$groups, F64Attr:$epsilon);
  let results = (outs MPT_Float:$y, MPT_Float:$mean, MPT_Float:$inv_std);
}
def MPT_GroupNormBackwardOp : MPT_CompositeOp<"group_norm_backward", "0b11100", "0b110"> {
  let summary = "gradients of group_norm with respect to x, scale and bias";
  let arguments = (ins MPT_Float:$dy, MPT_Float:$x, MPT_Float:$scale, MPT_Float:$mean, MPT_Float:$inv_std, I64Attr:$groups);
  let results = (outs MPT_Float:$dx, MPT_Float:$dscale, MPT_Float:$dbias);
}
def MPT_SoftmaxOp : MPT_CompositeOp<"softmax", "0", "0"> {
  let summary = "e^(x - max) / sum of e^(x - max) along `axis`; a row of -inf gives NaN";
  let arguments = (ins MPT_Float:$x, I64Attr:$axis);
  let results = (outs MPT_Float:$y);
}
def MPT_SoftmaxBackwardOp : MPT_CompositeOp<"softmax_backward", "0", "0"> {
  let summary = "y (dy - sum of dy y along `axis`)";
  let arguments = (ins MPT_Float:$dy, MPT_Float:$y, I64Attr:$axis);
  let results = (outs MPT_Float:$dx);
}
def MPT_LogSoftmaxOp : MPT_CompositeOp<"log_softmax", "0", "0"> {
  let summary = "x - max - log(sum of e^(x - max)) along `axis`";
  let arguments = (ins MPT_Float:$x, I64Attr:$axis);
  let results = (outs MPT_Float:$y);
}
def MPT_LogSoftmaxBackwardOp : MPT_CompositeOp<"log_softmax_backward", "0", "0"> {
  let summary = "dy - e^y sum of dy along `axis`";
  let arguments = (ins MPT_Float:$dy, MPT_Float:$y, I64Attr:$axis);
  let results = (outs MPT_Float:$dx);
}

#endif
