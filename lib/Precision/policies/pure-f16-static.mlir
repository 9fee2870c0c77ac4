// FP16 everywhere: parameters are updated in place without FP32 masters, gradients and first moments are FP16, the loss has a
// constant scale. Updates are rounded stochastically, since most are below half a unit in the last place of their
// parameter. Sums of squared gradients leave FP16's range from below and stay FP32.
policy.policy @pure_f16_static storage = f16 compute = f16 accumulate = f32 master = f16 gradients = f16 slots = f16 parameter_gradients = f16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling fixed {init = 1024.0}
  policy.rounding "nearest_even"
  policy.rounding "stochastic" of masters overflow "saturate"
}
