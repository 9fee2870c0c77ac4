// The op lists of PyTorch's autocast for CPU in bf16, for comparison: GEMMs narrow; losses, products of elements, sampling on
// grids and Fourier transforms in FP32; the rest, sums and softmax too, in the type that arrives. No loss scale, no skipping.
policy.policy @autocast_cpu_bf16 storage = bf16 compute = bf16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> follow
  policy.class "range-expanding" -> follow
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.op "mpt.reduce" with {kind = #mpt<reduce_kind prod>} -> wide
  policy.op "onnx.DFT" -> wide
  policy.op "onnx.Det" -> wide
  policy.op "onnx.GridSample" -> wide
  policy.op "onnx.PRelu" -> narrow
  policy.op "onnx.ReduceProd" -> wide
  policy.op "onnx.STFT" -> wide
  policy.loss_scaling none
  policy.rounding "nearest_even"
}
