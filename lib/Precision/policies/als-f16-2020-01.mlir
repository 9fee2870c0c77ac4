// Layer-wise adaptive scales as the authors of arXiv 1910.12385 had them in January 2020 (their code at 911ef2d): FP16 with a scale a
// layer, from the spread of a result's sum, and one where gradients are first rounded; at most 16 each and 1024 together, chosen
// every 1,000 steps and after a skipped one.
policy.policy @als_f16_2020_01 storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f32 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.class "range-expanding" -> wide
  policy.class "neutral" -> follow
  policy.class "movement" -> follow
  policy.loss_scaling adaptive {init = 1.0, first = "log_normal", headroom = 1.0, spread = "sum", total_from = "loss", smallest = 6.0e-8, largest = 65504.0, update_interval = 1000 : i64}
  policy.rounding "nearest_even"
}
