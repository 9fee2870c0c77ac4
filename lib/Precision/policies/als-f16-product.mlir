// As als-f16, with scales from the spread of one term of a result and without bounds a layer; not one of the published forms.
policy.policy @als_f16_product storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling adaptive {init = 1.0, spread = "product", layer_max = 3.0e38, total_max = 3.0e38}
  policy.rounding "nearest_even"
}
