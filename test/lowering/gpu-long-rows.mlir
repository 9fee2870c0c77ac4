// RUN: mpt-opt %s --memory-bufferize=kernels=gpu | FileCheck %s

// Four sums, one after the other, over rows that no team keeps in its registers: blocks of half the size leave each thread
// twice the registers.
// CHECK: func.func private @kernel0
// CHECK-SAME: mpt.block = array<i64: 256, 1, 1>
// CHECK-SAME: mpt.schedule = "rows"
func.func @four(%x: tensor<4x400000xf32>) -> tensor<4xf32> {
  %r = mpt.fusion(%x) : (tensor<4x400000xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4x400000xf32>):
    %s0 = mpt.reduce max %a {axes = array<i64: 1>} : (tensor<4x400000xf32>) -> tensor<4xf32>
    %b0 = mpt.broadcast %s0 {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x400000xf32>
    %d0 = mpt.sub %a, %b0 : tensor<4x400000xf32>
    %s1 = mpt.reduce sum %d0 {axes = array<i64: 1>} : (tensor<4x400000xf32>) -> tensor<4xf32>
    %b1 = mpt.broadcast %s1 {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x400000xf32>
    %d1 = mpt.mul %d0, %b1 : tensor<4x400000xf32>
    %s2 = mpt.reduce max %d1 {axes = array<i64: 1>} : (tensor<4x400000xf32>) -> tensor<4xf32>
    %b2 = mpt.broadcast %s2 {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x400000xf32>
    %d2 = mpt.sub %d1, %b2 : tensor<4x400000xf32>
    %s3 = mpt.reduce sum %d2 {axes = array<i64: 1>} : (tensor<4x400000xf32>) -> tensor<4xf32>
    mpt.yield %s3 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
