// A normalization that keeps no running statistics, as one that standardizes weights, is the same in evaluation.
// RUN: mpt-opt %s --training-evaluate | FileCheck %s
// CHECK-LABEL: func.func @evaluate
// CHECK: %[[Y:.*]], %{{.*}}, %{{.*}} = mpt.batch_norm
// CHECK: return %[[Y]]
func.func @forward(%w: tensor<1x8x9xf32>) -> tensor<1x8x9xf32> {
  %one = mpt.constant dense<1.0> : tensor<8xf32>
  %y, %m, %v = mpt.batch_norm %w, %one, %one {epsilon = 1.0e-5} : (tensor<1x8x9xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<1x8x9xf32>, tensor<8xf32>, tensor<8xf32>)
  return %y : tensor<1x8x9xf32>
}
