// FP16 with a scale a layer after arXiv 1910.12385, not one of its published forms: from the spread of a result's sum, bounded
// by 16 a layer and 1024 since the first rounding, whose own scale is bounded by the range alone. No scale is set by hand.
policy.policy @als_f16 storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling adaptive {init = 1.0, spread = "sum"}
  policy.rounding "nearest_even"
}
