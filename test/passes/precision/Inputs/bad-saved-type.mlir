policy.policy @bad storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 saved = bf16 {
}
