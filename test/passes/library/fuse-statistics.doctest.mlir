// RUN: mpt-opt %s --library-convert-calls --library-fuse-statistics | FileCheck %s
// CHECK: %[[Y:.*]], %[[SUMS:.*]]:2 = library.conv
// CHECK: mpt.fusion(%[[Y]], %[[SUMS]]#0, %[[SUMS]]#1)
func.func @norm(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>) -> (tensor<64xf64>, tensor<64xf64>) {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
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
