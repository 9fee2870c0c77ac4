policy.policy @misspelt storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  policy.class "contraction" -> narrow
  policy.op "mpt.mat_mul" -> wide
}
