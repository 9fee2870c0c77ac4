// arXiv 1905.12334: weights, activations, errors and gradients in 1-5-2 where GEMMs read them, FP32 accumulation, FP16
// parameters without FP32 masters and FP16 for all else, stochastic rounding of gradients and updates, a dynamic loss scale
// with a floor, which gives way where 16 steps in a row overflow. The first and the last layer compute in FP16.
policy.policy @fp8_e5m2 storage = f16 compute = f8E5M2 accumulate = f32 master = f16 gradients = f8E5M2 slots = f16 parameter_gradients = f8E5M2 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.where first -> storage
  policy.where last -> storage
  policy.loss_scaling dynamic {init = 65536.0, interval = 2000 : i64, hysteresis = 2 : i64, floor_steps = array<i64: 0>, floors = array<f64: 1024.0>}
  policy.rounding "nearest_even" of operands
  policy.rounding "stochastic" of gradients
  policy.rounding "stochastic" of masters overflow "saturate"
}
