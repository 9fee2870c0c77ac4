policy.policy @operand_rules storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  policy.class "contraction" -> narrow
  policy.class "reduction" -> wide
  policy.node "fc2" operand 1 -> wide
  policy.op "mpt.matmul" with {transpose_b = true} operand 0 -> wide
  policy.node "fc1" operand 0 -> narrow
}
