// RUN: mpt-opt %s --training-derive | FileCheck %s
// A graph asks for the derivative of y = x * x: the backward pass stands in its place.
// CHECK: func.func @forward(%[[X:.*]]: tensor<3xf32>
func.func @forward(%x: tensor<3xf32> {mpt.name = "x"}) -> (tensor<3xf32> {mpt.name = "dx"}) {
  // CHECK-NOT: train.derive
  // CHECK-NOT: train.gradient
  // CHECK: %[[ONE:.*]] = mpt.constant dense<1.000000e+00>
  // CHECK: %[[A:.*]] = mpt.mul %[[ONE]], %[[X]]
  // CHECK: %[[B:.*]] = mpt.mul %[[ONE]], %[[X]]
  // CHECK: %[[DX:.*]] = mpt.add %[[A]], %[[B]]
  // CHECK: return %[[DX]]
  %y = mpt.mul %x, %x : tensor<3xf32>
  %dx = train.derive %y of (%x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %dx : tensor<3xf32>
}
