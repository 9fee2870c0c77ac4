// RUN: mpt-opt %s --memory-assign-destinations | FileCheck %s
// The GEMM writes the output, and the transposed gradient goes to the state as its GEMM writes it.
// CHECK: train.write @w, %{{.*}} {library.placed = array<i64: 0>}
// CHECK: return {library.placed = array<i64: 0>}
train.state parameter @w : tensor<3x4xf32>
func.func @step(%x: tensor<2x3xf32>, %v: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %y = library.gemm %x, %v : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  %g = library.gemm %y, %x {transpose_a = true} : tensor<2x4xf32>, tensor<2x3xf32> -> tensor<4x3xf32>
  %t = mpt.transpose %g {permutation = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
  train.write @w, %t : tensor<3x4xf32>
  return %y : tensor<2x4xf32>
}
