// arXiv 1905.12334 with its storage of activations: fp8-e5m2, and activations kept for the backward pass are stored in 1-5-2
// too, not only operands of GEMMs.
policy.policy @fp8_e5m2_saved storage = f16 compute = f8E5M2 accumulate = f32 master = f16 gradients = f8E5M2 slots = f16 parameter_gradients = f8E5M2 saved = f8E5M2 {
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
