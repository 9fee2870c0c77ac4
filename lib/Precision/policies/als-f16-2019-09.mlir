// arXiv 1910.12385 as its authors published it in September 2019 (their code at 060a6a8): FP16 with a scale a layer, from
// the spread of one term of a result, at most 16 a layer and 1024 from the loss on, chosen each step.
policy.policy @als_f16_2019_09 storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling adaptive {init = 1.0, first = "none", spread = "product", total_from = "loss", smallest = 6.0e-8, largest = 6.0e4}
  policy.rounding "nearest_even"
}
