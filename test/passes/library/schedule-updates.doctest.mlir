// RUN: mpt-opt %s --library-schedule-updates | FileCheck %s
// The update of @w moves before ops that do not touch @w.
// CHECK: %[[G:.*]] = mpt.matmul %arg0, %arg1 {transpose_a = true}
// CHECK-NEXT: mpt.fusion(%{{.*}}, %[[G]])
// CHECK: mpt.matmul %arg1, %arg2
train.state parameter @w : tensor<4x8xf32>
func.func @step(%x: tensor<2x4xf32>, %d: tensor<2x8xf32>, %a: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %w = train.read @w : tensor<4x8xf32>
  %g = mpt.matmul %x, %d {transpose_a = true} : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %new = mpt.fusion(%w, %g) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>, %q: tensor<4x8xf32>):
    %s = mpt.sub %p, %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %z : tensor<2x8xf32>
}
