// arXiv 1910.12385: FP16 with a scale a layer, chosen each step from the spread of a result's sum; no scale is set by hand. Parameter gradients are FP32.
policy.policy @als_f16 storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling adaptive {init = 1.0, spread = "sum"}
  policy.rounding "nearest_even"
}
