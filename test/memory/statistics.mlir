// RUN: mpt-opt %s --library-convert-calls --library-fuse-statistics=channel-unit=8 --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s

// Sums and sums of squares come with the convolution; the kernel reads its result where they do not do.
// CHECK-LABEL: func.func @norm
// CHECK: %[[Y:.*]] = rt.alloc : memref<4x64x16x16xf16, strided<[16384, 1, 1024, 64]>>
// CHECK: %[[SUMS:.*]] = rt.alloc : memref<2x64xf32>
// CHECK: %[[SUM:.*]] = rt.view %[[SUMS]][0] : memref<2x64xf32> to memref<64xf32>
// CHECK: %[[SQUARES:.*]] = rt.view %[[SUMS]][64] : memref<2x64xf32> to memref<64xf32>
// CHECK: rt.conv forward %{{.*}}, %{{.*}}, %[[Y]] sums %[[SUMS]] : memref<2x64xf32>
// CHECK: rt.launch @kernel{{[0-9]+}}(%[[Y]], %[[SUM]], %[[SQUARES]], %{{.*}}, %{{.*}}, %{{.*}})
func.func @norm(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>) -> (tensor<64xf32>, tensor<64xf32>) {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %r:2 = mpt.fusion(%y) : (tensor<4x64x16x16xf16>) -> (tensor<64xf32>, tensor<64xf32>) {
  ^bb0(%a: tensor<4x64x16x16xf16>):
    %wide = mpt.cast %a : tensor<4x64x16x16xf16> to tensor<4x64x16x16xf32>
    %d = mpt.cast %wide : tensor<4x64x16x16xf32> to tensor<4x64x16x16xf64>
    %m = mpt.reduce mean %d {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf64>) -> tensor<64xf64>
    %d2 = mpt.mul %d, %d : tensor<4x64x16x16xf64>
    %e = mpt.reduce mean %d2 {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf64>) -> tensor<64xf64>
    %mm = mpt.mul %m, %m : tensor<64xf64>
    %v = mpt.sub %e, %mm : tensor<64xf64>
    %m32 = mpt.cast %m : tensor<64xf64> to tensor<64xf32>
    %v32 = mpt.cast %v : tensor<64xf64> to tensor<64xf32>
    mpt.yield %m32, %v32 : tensor<64xf32>, tensor<64xf32>
  }
  return %r#0, %r#1 : tensor<64xf32>, tensor<64xf32>
}

// FP32 keeps its own sums, and so do channels that libraries do not take and reductions of another kind.
// CHECK-LABEL: func.func @wide
// CHECK-NOT: sums
func.func @wide(%x: tensor<4x8x16x16xf32>, %w: tensor<64x8x3x3xf32>) -> (tensor<64xf64>, tensor<64xf64>) {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf32>, tensor<64x8x3x3xf32>) -> tensor<4x64x16x16xf32>
  %r:2 = mpt.fusion(%y) : (tensor<4x64x16x16xf32>) -> (tensor<64xf64>, tensor<64xf64>) {
  ^bb0(%a: tensor<4x64x16x16xf32>):
    %d = mpt.cast %a : tensor<4x64x16x16xf32> to tensor<4x64x16x16xf64>
    %m = mpt.reduce mean %d {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf64>) -> tensor<64xf64>
    %d2 = mpt.mul %d, %d : tensor<4x64x16x16xf64>
    %e = mpt.reduce mean %d2 {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf64>) -> tensor<64xf64>
    mpt.yield %m, %e : tensor<64xf64>, tensor<64xf64>
  }
  return %r#0, %r#1 : tensor<64xf64>, tensor<64xf64>
}

// CHECK-LABEL: func.func @three
// CHECK-NOT: sums
func.func @three(%x: tensor<4x3x16x16xf16>, %w: tensor<64x3x3x3xf16>) -> (tensor<64xf64>, tensor<64xf64>) {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xf16>, tensor<64x3x3x3xf16>) -> tensor<4x64x16x16xf16>
  %r:2 = mpt.fusion(%y) : (tensor<4x64x16x16xf16>) -> (tensor<64xf64>, tensor<64xf64>) {
  ^bb0(%a: tensor<4x64x16x16xf16>):
    %d = mpt.cast %a : tensor<4x64x16x16xf16> to tensor<4x64x16x16xf64>
    %m = mpt.reduce mean %d {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf64>) -> tensor<64xf64>
    %d2 = mpt.mul %d, %d : tensor<4x64x16x16xf64>
    %e = mpt.reduce mean %d2 {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf64>) -> tensor<64xf64>
    mpt.yield %m, %e : tensor<64xf64>, tensor<64xf64>
  }
  return %r#0, %r#1 : tensor<64xf64>, tensor<64xf64>
}

// CHECK-LABEL: func.func @largest
// CHECK-NOT: sums
// CHECK: func.func private @kernel2(
// CHECK-SAME: mpt.guarded = array<i64: 0>
// CHECK-NOT: mpt.guarded
func.func @largest(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>) -> tensor<64xf16> {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %r = mpt.fusion(%y) : (tensor<4x64x16x16xf16>) -> tensor<64xf16> {
  ^bb0(%a: tensor<4x64x16x16xf16>):
    %m = mpt.reduce max %a {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf16>) -> tensor<64xf16>
    mpt.yield %m : tensor<64xf16>
  }
  return %r : tensor<64xf16>
}
