// BF16 storage with FP32 masters and accumulators; gradients are stored in BF16 and widened for the update. BF16 has FP32's
// range: sums may be stored narrow and the loss needs no scale, but steps that are not finite are skipped all the same.
policy.policy @amp_bf16 storage = bf16 compute = bf16 accumulate = f32 master = f32 gradients = bf16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> follow
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling fixed {init = 1.0}
  policy.rounding "nearest_even"
}
