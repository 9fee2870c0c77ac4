// RUN: mpt-opt %s --fusion-code-activations=all | FileCheck %s
// The example of docs/generated/passes.md: the GEMM of the weight's gradient reads %y back from codes; %z, of the forward pass, does not.
// CHECK: %[[Y:.*]] = mpt.matmul %arg0, %arg1
// CHECK: %[[A:.*]] = mpt.abs %[[Y]]
// CHECK: mpt.reduce max %[[A]] {axes = array<i64: 1>}
// CHECK: %[[C:.*]] = mpt.cast %{{.*}} : tensor<64x128xf32> to tensor<64x128xf8E4M3FN>
// CHECK: mpt.matmul %[[Y]], %arg2
// CHECK: %[[R:.*]] = mpt.cast %[[C]] {mpt.recomputed} : tensor<64x128xf8E4M3FN> to tensor<64x128xf32>
// CHECK: %[[B:.*]] = mpt.mul %[[R]], %{{.*}} {mpt.recomputed}
// CHECK: mpt.matmul %[[B]], %{{.*}}transpose_a
func.func @step(%x: tensor<64x32xf32>, %w: tensor<32x128xf32>, %v: tensor<128x8xf32>)
    -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<128x8xf32>) {
  %y = mpt.matmul %x, %w : (tensor<64x32xf32>, tensor<32x128xf32>) -> tensor<64x128xf32>
  %z = mpt.matmul %y, %v : (tensor<64x128xf32>, tensor<128x8xf32>) -> tensor<64x8xf32>
  %loss = mpt.reduce sum %z {axes = array<i64: 0, 1>} : (tensor<64x8xf32>) -> tensor<f32>
  %g = mpt.matmul %y, %z {train.part = #train<part backward>, transpose_a = true} : (tensor<64x128xf32>, tensor<64x8xf32>) -> tensor<128x8xf32>
  return %loss, %g : tensor<f32>, tensor<128x8xf32>
}
