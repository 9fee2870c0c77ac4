// GEMMs of 8-bit operands: E4M3 in the forward pass, E5M2 gradients in the backward pass, each tensor with a scale from
// the largest magnitude of the last 1024 steps. BF16 elsewhere, FP32 masters. The first and the last layer and
// GEMMs of two activations stay BF16.
policy.policy @fp8_hybrid storage = bf16 compute = f8E4M3FN accumulate = f32 master = f32 gradients = f8E5M2 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> follow
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.where unweighted -> storage
  policy.where first -> storage
  policy.where last -> storage
  policy.tensor_scaling delayed {history = 1024 : i64}
  policy.loss_scaling fixed {init = 1.0}
  policy.rounding "nearest_even" of all overflow "saturate"
}
