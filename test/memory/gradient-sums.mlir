// RUN: mpt-opt %s --library-convert-calls --library-fuse-gradient-sums=channel-unit=8 --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s

// Both sums come with the gradient; the kernel that wants them reads neither it nor the norm's input where they are
// numbers.
// CHECK-LABEL: func.func @norm
// CHECK: rt.conv forward %{{.*}}, %{{.*}}, %[[X:[0-9a-z]+]] {{.*}}
// CHECK: %[[DX:.*]] = rt.alloc : memref<4x16x16x16xbf16, strided<[4096, 1, 256, 16]>>
// CHECK: %[[SUMS:.*]] = rt.alloc : memref<2x16xf32>
// CHECK: rt.conv backward_data %[[DX]], %{{.*}}, %{{.*}} sums %[[SUMS]] : memref<2x16xf32> norm %[[X]], %arg4, %arg5, %arg6, %arg7 : memref<4x16x16x16xbf16, strided<[4096, 1, 256, 16]>>, memref<16xf32>
// CHECK: rt.launch @[[$SUMMING:kernel[0-9]+]](%[[X]], %arg4, %arg5, %arg6, %arg7, %[[DX]],
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

// A reader that does not mask the gradient wants all of it, so that the library may not leave it masked.
// CHECK-LABEL: func.func @unmasked
// CHECK-NOT: norm
// CHECK: func.func private @[[$SUMMING]](
// CHECK-SAME: mpt.guarded = array<i64: 0, 5>
// CHECK-NOT: mpt.guarded
func.func @unmasked(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %v: tensor<4x3x16x16xbf16>, %u: tensor<16x3x1x1xbf16>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> (tensor<16xf32>, tensor<4x16x16x16xbf16>) {
  %x = mpt.conv %v, %u {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xbf16>, tensor<16x3x1x1xbf16>) -> tensor<4x16x16x16xbf16>
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %r = mpt.fusion(%x, %mean, %inverse, %scale, %shift, %dx) : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) -> tensor<16xf32> {
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
    mpt.yield %sum : tensor<16xf32>
  }
  %n = mpt.fusion(%dx) : (tensor<4x16x16x16xbf16>) -> tensor<4x16x16x16xbf16> {
  ^bb0(%g: tensor<4x16x16x16xbf16>):
    %neg = mpt.neg %g : tensor<4x16x16x16xbf16>
    mpt.yield %neg : tensor<4x16x16x16xbf16>
  }
  return %r, %n : tensor<16xf32>, tensor<4x16x16x16xbf16>
}
