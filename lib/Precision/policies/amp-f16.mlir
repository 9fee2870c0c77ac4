// FP16 storage with FP32 masters and accumulators, and a dynamic loss scale. Gradients are stored in FP16, scaled, and widened
// before they are unscaled.
policy.policy @amp_f16 storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling dynamic {init = 65536.0, growth = 2.0, backoff = 0.5, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05, max = 16777216.0}
  policy.rounding "nearest_even"
}
