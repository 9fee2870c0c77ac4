// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s

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

// Elements and sums of all of them, as layer-wise scales want of a gradient: slices of the one row write their elements, and
// the second launch does the ops on the sums.
// CHECK: func.func private @kernel1(
// CHECK-SAME: mpt.grid = array<i64: 1, {{[1-9][0-9]+}}, 1>
// CHECK-SAME: mpt.schedule = "columns"
// CHECK: func.func private @kernel1_1
// CHECK-SAME: mpt.schedule = "columns-sum"
func.func @moments(%x: tensor<256x6400xf16>, %s: tensor<f32>) -> (tensor<256x6400xf16>, tensor<f32>, tensor<f32>) {
  %r:3 = mpt.fusion(%x, %s) : (tensor<256x6400xf16>, tensor<f32>) -> (tensor<256x6400xf16>, tensor<f32>, tensor<f32>) {
  ^bb0(%a: tensor<256x6400xf16>, %b: tensor<f32>):
    %wide = mpt.cast %a : tensor<256x6400xf16> to tensor<256x6400xf32>
    %scale = mpt.broadcast %b {dims = array<i64>} : (tensor<f32>) -> tensor<256x6400xf32>
    %scaled = mpt.mul %wide, %scale : tensor<256x6400xf32>
    %y = mpt.cast %scaled : tensor<256x6400xf32> to tensor<256x6400xf16>
    %again = mpt.cast %y : tensor<256x6400xf16> to tensor<256x6400xf32>
    %square = mpt.mul %again, %again : tensor<256x6400xf32>
    %mean = mpt.reduce mean %square {axes = array<i64: 0, 1>} : (tensor<256x6400xf32>) -> tensor<f32>
    %size = mpt.abs %again : tensor<256x6400xf32>
    %top = mpt.reduce max %size {axes = array<i64: 0, 1>} : (tensor<256x6400xf32>) -> tensor<f32>
    %ratio = mpt.div %top, %mean : tensor<f32>
    mpt.yield %y, %ratio, %top : tensor<256x6400xf16>, tensor<f32>, tensor<f32>
  }
  return %r#0, %r#1, %r#2 : tensor<256x6400xf16>, tensor<f32>, tensor<f32>
}
