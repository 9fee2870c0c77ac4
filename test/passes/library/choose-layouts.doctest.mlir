// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts | FileCheck %s
// Data of a convolution lie channels-last, and the kernel behind it keeps that.
// CHECK: library.conv forward {{.*}}library.layouts = [#library.layout<[0, 2, 3, 1]>]
// CHECK: mpt.fusion{{.*}}library.layouts = [#library.layout<[0, 2, 3, 1]>]
func.func @layer(%x: tensor<2x3x8x8xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<2x8x6x6xf32> {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x6x6xf32>
  %r = mpt.fusion(%y) : (tensor<2x8x6x6xf32>) -> tensor<2x8x6x6xf32> {
  ^bb0(%p: tensor<2x8x6x6xf32>):
    %s = mpt.relu %p : tensor<2x8x6x6xf32>
    mpt.yield %s : tensor<2x8x6x6xf32>
  }
  return %r : tensor<2x8x6x6xf32>
}
