policy.policy @bad storage = f16 compute = f8E5M2 accumulate = f32 master = f16 gradients = f8E5M2 saved = f8E5M2 {
  policy.tensor_scaling delayed {history = 16 : i64}
}
