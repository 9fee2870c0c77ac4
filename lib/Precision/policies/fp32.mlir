// Everything in FP32: the reference that other policies are compared with.
policy.policy @fp32 storage = f32 compute = f32 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> follow
  policy.class "reduction" -> follow
  policy.class "range-expanding" -> follow
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling none
  policy.rounding "nearest_even"
}
