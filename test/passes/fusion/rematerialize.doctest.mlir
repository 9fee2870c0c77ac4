// RUN: mpt-opt %s --fusion-rematerialize | FileCheck %s
// The example of docs/generated/passes.md: the backward pass rematerializes %f from %x, which is kept for a GEMM anyway.
// CHECK: mpt.exp %{{.*}} : tensor<64x128xf32>
// CHECK: %[[G:.*]] = mpt.matmul %{{.*}} {train.part = #train<part backward>, transpose_b = true}
// CHECK: %[[E:.*]] = mpt.exp %{{.*}} {mpt.recomputed} : tensor<64x128xf32>
// CHECK: mpt.mul %[[G]], %[[E]] : tensor<64x128xf32>
func.func @step(%a: tensor<64x32xf32>, %w: tensor<32x128xf32>, %v: tensor<128x8xf32>)
    -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x128xf32>, tensor<128x8xf32>) {
  %x = mpt.matmul %a, %w : (tensor<64x32xf32>, tensor<32x128xf32>) -> tensor<64x128xf32>
  %f = mpt.exp %x : tensor<64x128xf32>
  %s = mpt.add %f, %x : tensor<64x128xf32>
  %y = mpt.matmul %s, %v : (tensor<64x128xf32>, tensor<128x8xf32>) -> tensor<64x8xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<64x8xf32>) -> tensor<f32>
  %g = mpt.matmul %y, %v {train.part = #train<part backward>, transpose_b = true} : (tensor<64x8xf32>, tensor<128x8xf32>) -> tensor<64x128xf32>
  %d = mpt.mul %g, %f : tensor<64x128xf32>
  %gv = mpt.matmul %x, %y {train.part = #train<part backward>, transpose_a = true} : (tensor<64x128xf32>, tensor<64x8xf32>) -> tensor<128x8xf32>
  return %loss, %d, %gv : tensor<f32>, tensor<64x128xf32>, tensor<128x8xf32>
}
