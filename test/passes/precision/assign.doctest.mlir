// RUN: mpt-opt %s --precision-assign=policy=%S/Inputs/mine.mlir | FileCheck %s
// RUN: not mpt-opt %s --precision-assign=policy=%S/Inputs/narrow-master.mlir 2>&1 | FileCheck %s --check-prefix=MASTER
// RUN: not mpt-opt %s --precision-assign=policy=%S/Inputs/mlp.mlir 2>&1 | FileCheck %s --check-prefix=NONE
// The policy file of docs/precision.md: an op rule, a node rule, its own loss scale.
// CHECK: hysteresis = 2 : i64, init = 3.276800e+04 : f64, {{.*}}min = 4.000000e+00 : f64, {{.*}}name = "mine"
// CHECK: mpt.matmul {{.*}}results = [f32], rule = "class contraction -> narrow
// CHECK: mpt.tanh {{.*}}operands = [f32], results = [f32], rule = "policy.op \22mpt.tanh\22 -> wide"
// CHECK: mpt.matmul {{.*}}operands = [f32, f32], results = [f32], rule = "policy.node \22/classifier/.*\22 -> wide"
// MASTER: C3: expected f32 or 'f16' (the storage type) for master, got 'bf16'
// NONE: expected one policy.policy in {{.*}}mlp.mlir, got 0
func.func @evaluate(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = mpt.matmul %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = mpt.tanh %0 : tensor<8x8xf32>
  %2 = mpt.matmul %1, %1 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("/classifier/MatMul")
  return %2 : tensor<8x8xf32>
}
