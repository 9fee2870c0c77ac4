// The op lists of PyTorch's autocast for CUDA in bf16, for comparison: GEMMs narrow; exponentials, sums, softmax, norms over layers
// and groups, losses and resizing in FP32; the rest in the type that arrives. Loss scale: none, but a step that is not finite is skipped.
policy.policy @autocast_cuda_bf16 storage = bf16 compute = bf16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.op "mpt.group_norm" -> wide
  policy.op "mpt.group_norm_backward" -> wide
  policy.op "mpt.layer_norm" -> wide
  policy.op "mpt.layer_norm_backward" -> wide
  policy.op "mpt.log" -> wide
  policy.op "mpt.log_softmax" -> wide
  policy.op "mpt.log_softmax_backward" -> wide
  policy.op "mpt.reciprocal" -> wide
  policy.op "mpt.reduce" with {kind = #mpt<reduce_kind max>} -> follow
  policy.op "mpt.reduce" with {kind = #mpt<reduce_kind mean>} -> follow
  policy.op "mpt.reduce" with {kind = #mpt<reduce_kind min>} -> follow
  policy.op "mpt.resize" -> wide
  policy.op "mpt.resize_backward" -> wide
  policy.op "mpt.softmax" -> wide
  policy.op "mpt.softmax_backward" -> wide
  policy.op "onnx.Acos" -> wide
  policy.op "onnx.Asin" -> wide
  policy.op "onnx.InstanceNormalization" -> follow
  policy.op "onnx.LRN" -> follow
  policy.op "onnx.Log" -> wide
  policy.op "onnx.PRelu" -> narrow
  policy.op "onnx.Reciprocal" -> wide
  policy.op "onnx.ReduceMean" -> follow
  policy.op "onnx.ReduceSumSquare" -> follow
  policy.op "onnx.Resize" -> wide
  policy.op "onnx.Upsample" -> wide
  policy.loss_scaling fixed {init = 1.0}
  policy.rounding "nearest_even"
}
