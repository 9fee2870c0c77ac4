// RUN: mpt-opt %s --training-simplify | FileCheck %s
// A linear layer over a sequence: its transposed, repeated weight becomes a flag of one GEMM over all rows.

// CHECK-LABEL: func.func @linear(
// CHECK-SAME: %[[X:.*]]: tensor<2x5x3xf32>, %[[W:.*]]: tensor<4x3xf32>)
func.func @linear(%x: tensor<2x5x3xf32>, %w: tensor<4x3xf32>) -> tensor<2x5x4xf32> {
  // CHECK: %[[ROWS:.*]] = mpt.reshape %[[X]] : (tensor<2x5x3xf32>) -> tensor<10x3xf32>
  // CHECK: %[[Y:.*]] = mpt.matmul %[[ROWS]], %[[W]] {transpose_b = true}
  // CHECK: mpt.reshape %[[Y]] : (tensor<10x4xf32>) -> tensor<2x5x4xf32>
  %t = mpt.transpose %w {permutation = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %b = mpt.broadcast %t {dims = array<i64: 1, 2>} : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
  %y = mpt.matmul %x, %b : (tensor<2x5x3xf32>, tensor<2x3x4xf32>) -> tensor<2x5x4xf32>
  return %y : tensor<2x5x4xf32>
}
