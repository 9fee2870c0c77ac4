// RUN: mpt-opt %s --library-fuse-channel-sums | FileCheck %s
// CHECK: %[[Y:.*]], %[[SUMS:.*]]:2 = library.conv
// CHECK: %[[SOUND:.*]] = mpt.compare ge
// CHECK: mpt.select %[[SOUND]]
func.func @norm(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}
