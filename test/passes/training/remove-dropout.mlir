// RUN: mpt-opt %s --training-remove-dropout | FileCheck %s
// A generator that still serves another op stays; dropouts of both functions go.

// CHECK: train.state {{.*}}@mpt.rng
// CHECK-LABEL: func.func @forward
// CHECK-NOT: mpt.dropout
// CHECK: %[[KEY:.*]] = train.read @mpt.rng
// CHECK: mpt.random_uniform %[[KEY]]
// CHECK-LABEL: func.func @other
// CHECK-NOT: mpt.dropout
train.state rng @mpt.rng : tensor<2xi64> = dense<[7, 0]> : tensor<2xi64>
func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
  %key = train.read @mpt.rng : tensor<2xi64>
  %d = mpt.dropout %x, %key {ratio = 0.5, stream = 0} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  %u = mpt.random_uniform %key {low = 0.0, high = 1.0, stream = 1} : (tensor<2xi64>) -> tensor<4xf32>
  %y = mpt.add %d, %u : tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @other(%x: tensor<4xf32>, %key: tensor<2xi64>) -> tensor<4xf32> {
  %d = mpt.dropout %x, %key {ratio = 0.5, stream = 0} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  return %d : tensor<4xf32>
}
