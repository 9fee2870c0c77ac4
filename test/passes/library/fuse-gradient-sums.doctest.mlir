// RUN: mpt-opt %s --library-convert-calls --library-fuse-gradient-sums | FileCheck %s
// CHECK: %[[DX:.*]], %[[SUMS:.*]]:2 = library.conv backward_data
// CHECK: mpt.fusion({{.*}}%[[DX]], %[[SUMS]]#0, %[[SUMS]]#1)
func.func @norm(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %v: tensor<4x3x16x16xbf16>, %u: tensor<16x3x1x1xbf16>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %x = mpt.conv %v, %u {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xbf16>, tensor<16x3x1x1xbf16>) -> tensor<4x16x16x16xbf16>
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %r:3 = mpt.fusion(%x, %mean, %inverse, %scale, %shift, %dx) : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  ^bb0(%a: tensor<4x16x16x16xbf16>, %m: tensor<16xf32>, %i: tensor<16xf32>, %s: tensor<16xf32>, %b: tensor<16xf32>, %g: tensor<4x16x16x16xbf16>):
    %wide = mpt.cast %a : tensor<4x16x16x16xbf16> to tensor<4x16x16x16xf32>
    %ms = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %centred = mpt.sub %wide, %ms : tensor<4x16x16x16xf32>
    %is = mpt.broadcast %i {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %normal = mpt.mul %centred, %is : tensor<4x16x16x16xf32>
    %ss = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %scaled = mpt.mul %normal, %ss : tensor<4x16x16x16xf32>
    %bs = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %shifted = mpt.add %scaled, %bs : tensor<4x16x16x16xf32>
    %narrow = mpt.cast %shifted : tensor<4x16x16x16xf32> to tensor<4x16x16x16xbf16>
    %relu = mpt.relu %narrow : tensor<4x16x16x16xbf16>
    %masked = mpt.relu_backward %g, %relu : tensor<4x16x16x16xbf16>
    %gw = mpt.cast %masked : tensor<4x16x16x16xbf16> to tensor<4x16x16x16xf32>
    %sum = mpt.reduce sum %gw {axes = array<i64: 0, 2, 3>} : (tensor<4x16x16x16xf32>) -> tensor<16xf32>
    %gn = mpt.mul %gw, %normal : tensor<4x16x16x16xf32>
    %other = mpt.reduce sum %gn {axes = array<i64: 0, 2, 3>} : (tensor<4x16x16x16xf32>) -> tensor<16xf32>
    %gs = mpt.mul %gw, %ss : tensor<4x16x16x16xf32>
    %gsn = mpt.mul %gs, %normal : tensor<4x16x16x16xf32>
    %mean2 = mpt.reduce mean %gsn {axes = array<i64: 0, 2, 3>} : (tensor<4x16x16x16xf32>) -> tensor<16xf32>
    mpt.yield %sum, %other, %mean2 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}
