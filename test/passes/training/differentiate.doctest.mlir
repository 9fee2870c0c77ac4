// RUN: mpt-opt %s --training-differentiate | FileCheck %s
// A linear layer: the gradient of w comes right after its GEMM, and is named by its parameter.
train.state parameter @w : tensor<3x2xf32> = dense<0.5> : tensor<3x2xf32>

// CHECK-LABEL: func.func @step(
// CHECK-SAME: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>})
func.func @forward(%x: tensor<4x3xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %w = train.read @w : tensor<3x2xf32>
  %y = mpt.matmul %x, %w : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<4x2xf32>) -> tensor<f32>
  // CHECK: %[[SEED:.*]] = train.scale_loss %{{.*}}, %{{.*}} {mpt.seed}
  // CHECK: %[[DY:.*]] = mpt.broadcast %[[SEED]]
  // CHECK: %[[DW:.*]] = mpt.matmul %{{.*}}, %[[DY]] {transpose_a = true}
  // CHECK: train.gradient @w, %[[DW]]
  return %loss : tensor<f32>
}
