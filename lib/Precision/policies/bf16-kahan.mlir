// BF16 weights without masters, with Kahan's compensation after arXiv 2010.06192: the error of rounding a new parameter to BF16
// is kept in BF16 and added before the next update, so that small updates add up. The forward and backward pass read the BF16
// parameter alone. Optimizer state is FP32 unless `--slots` says otherwise; no loss scale.
policy.policy @bf16_kahan storage = bf16 compute = bf16 accumulate = f32 master = bf16 gradients = bf16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> follow
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling fixed {init = 1.0}
  policy.rounding "nearest_even"
  policy.rounding "compensated" of masters overflow "saturate"
}
