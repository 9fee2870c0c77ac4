// RUN: not mpt-opt %s --library-verify-updates 2>&1 | FileCheck %s
// The update of @w waits for its gradient alone, so it has to run before the second GEMM.
// CHECK: error: 'mpt.fusion' op expected the update of @w directly behind the last op that it waits for, got mpt.matmul between them
// CHECK: note: the update waits for this op
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
