policy.policy @wide_gradients storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.op "mpt.tanh" -> wide
  policy.node "/classifier/.*" -> wide
  policy.loss_scaling dynamic {init = 32768.0, hysteresis = 2 : i64, min = 4.0}
}
