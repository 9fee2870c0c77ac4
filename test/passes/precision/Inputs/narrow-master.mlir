policy.policy @bad storage = f16 compute = f16 accumulate = f32 master = bf16 gradients = f16 {
}
