// RUN: mpt-opt %s --training-remove-dropout | FileCheck %s
// Nothing draws random numbers any more, so the generator goes too.

// CHECK-NOT: mpt.rng
// CHECK-LABEL: func.func @forward(%arg0: tensor<4xf32>)
// CHECK-NEXT: return %arg0
train.state rng @mpt.rng : tensor<2xi64> = dense<[7, 0]> : tensor<2xi64>
func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
  %key = train.read @mpt.rng : tensor<2xi64>
  %d = mpt.dropout %x, %key {ratio = 0.5, stream = 0} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  return %d : tensor<4xf32>
}
