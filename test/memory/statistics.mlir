// RUN: mpt-opt %s --from=fusion --to=kernels --target=cuda | FileCheck %s

// Sums and sums of squares come with the convolution; the kernel reads its result where they do not do.
// CHECK-LABEL: func.func @norm
// CHECK: %[[SUMS:.*]] = rt.alloc : memref<2x64xf32>
// CHECK-DAG: %[[SUM:.*]] = rt.view %[[SUMS]][0] : memref<2x64xf32> to memref<64xf32>
// CHECK-DAG: %[[SQUARES:.*]] = rt.view %[[SUMS]][64] : memref<2x64xf32> to memref<64xf32>
// CHECK: rt.conv forward %{{.*}}, %{{.*}}, %[[Y:.*]] sums %[[SUMS]] : memref<2x64xf32>
// CHECK: rt.launch @[[$MOMENTS:kernel[0-9]+]](%[[SUM]], %[[SQUARES]], %[[Y]], %
func.func @norm(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}

// FP32 keeps its own sums, and so do channels that libraries do not take.
// CHECK-LABEL: func.func @wide
// CHECK-NOT: sums
func.func @wide(%x: tensor<4x8x16x16xf32>, %w: tensor<64x8x3x3xf32>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf32>, tensor<64x8x3x3xf32>) -> tensor<4x64x16x16xf32>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>
}

// CHECK-LABEL: func.func @three
// CHECK-NOT: sums
// CHECK: func.func private @[[$MOMENTS]](
// CHECK-SAME: mpt.guarded = array<i64: 2>
// CHECK-NOT: mpt.guarded
func.func @three(%x: tensor<4x3x16x16xf16>, %w: tensor<64x3x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xf16>, tensor<64x3x3x3xf16>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}
