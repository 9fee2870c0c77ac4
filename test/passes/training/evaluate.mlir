// RUN: not mpt-opt %s --training-evaluate 2>&1 | FileCheck %s
// CHECK: evaluate.mlir:[[#@LINE+3]]:{{.*}} error: 'mpt.batch_norm' op expected the attribute mpt.statistics to name the running mean and variance
func.func @forward(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %one = mpt.constant dense<1.0> : tensor<3xf32>
  %y, %m, %v = mpt.batch_norm %x, %one, %one {epsilon = 1.0e-5, mpt.statistics = [@mean]} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %y : tensor<4x3xf32>
}
