// BF16 weights without masters: parameters are updated in FP32 and rounded stochastically, since most updates are below half a
// unit in the last place of their parameter. Optimizer state is FP32 unless `--slots` says otherwise. BF16 has FP32's range:
// the loss needs no scale, but steps that are not finite are skipped all the same.
policy.policy @bf16_sr storage = bf16 compute = bf16 accumulate = f32 master = bf16 gradients = bf16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> follow
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling fixed {init = 1.0}
  policy.rounding "nearest_even"
  policy.rounding "stochastic" of masters overflow "saturate"
}
