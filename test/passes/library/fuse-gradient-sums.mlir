// RUN: mpt-opt %s --library-convert-calls --library-fuse-gradient-sums=channel-unit=8 | FileCheck %s
// RUN: mpt-opt %s --library-convert-calls --library-fuse-gradient-sums=channel-unit=8 --debug-only=library-fuse-gradient-sums 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// Both sums come with the gradient; the kernel takes them unless they are NaN.
// CHECK-LABEL: func.func @norm
// CHECK: %[[X:.*]] = library.conv forward %arg2, %arg3
// CHECK: %[[DX:.*]], %[[SUMS:.*]]:2 = library.conv backward_data %arg0, %arg1 norm %[[X]], %arg4, %arg5, %arg6, %arg7 : {{.*}}train.part = #train<part backward>{{.*}} -> tensor<4x16x16x16xbf16> sums tensor<16xf32>, tensor<16xf32>
// CHECK: mpt.fusion(%[[X]], %arg4, %arg5, %arg6, %arg7, %[[DX]], %[[SUMS]]#0, %[[SUMS]]#1)
// CHECK: %[[SOUND:.*]] = mpt.compare eq
// CHECK: mpt.select %[[SOUND]]
func.func @norm(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %v: tensor<4x3x16x16xbf16>, %u: tensor<16x3x1x1xbf16>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %x = mpt.conv %v, %u {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xbf16>, tensor<16x3x1x1xbf16>) -> tensor<4x16x16x16xbf16>
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>, train.part = #train<part backward>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
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
// CHECK: library.conv backward_data
// WHY: library-fuse-gradient-sums: {{.*}}: no channel sums: expected every reader to mask it by the ReLU of one batch norm, got another reader
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

// Every reader masks the gradient, and none sums it.
// CHECK-LABEL: func.func @elements
// CHECK: library.conv backward_data
// WHY: library-fuse-gradient-sums: {{.*}}: no channel sums: expected a kernel that makes nothing but sums by channel of it, got none
func.func @elements(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> tensor<4x16x16x16xbf16> {
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %r = mpt.fusion(%x, %mean, %inverse, %scale, %shift, %dx) : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) -> tensor<4x16x16x16xbf16> {
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
    mpt.yield %masked : tensor<4x16x16x16xbf16>
  }
  return %r : tensor<4x16x16x16xbf16>
}

// The norm's input is made behind the convolution.
// CHECK-LABEL: func.func @late
// CHECK: library.conv backward_data
// WHY: library-fuse-gradient-sums: {{.*}}: no channel sums: expected the parts of the norm before the convolution, got them behind it
func.func @late(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> tensor<16xf32> {
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %late = mpt.fusion(%x) : (tensor<4x16x16x16xbf16>) -> tensor<4x16x16x16xbf16> {
  ^bb0(%p: tensor<4x16x16x16xbf16>):
    %neg = mpt.neg %p : tensor<4x16x16x16xbf16>
    mpt.yield %neg : tensor<4x16x16x16xbf16>
  }
  %r = mpt.fusion(%late, %mean, %inverse, %scale, %shift, %dx) : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) -> tensor<16xf32> {
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
    %r0 = mpt.reduce sum %gw {axes = array<i64: 0, 2, 3>} : (tensor<4x16x16x16xf32>) -> tensor<16xf32>
    mpt.yield %r0 : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}

// The norm's input is wider than the gradient.
// CHECK-LABEL: func.func @input
// CHECK: library.conv backward_data
// WHY: library-fuse-gradient-sums: {{.*}}: no channel sums: expected an input of the norm of the gradient's type, got another
func.func @input(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xf32>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> tensor<16xf32> {
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %r = mpt.fusion(%x, %mean, %inverse, %scale, %shift, %dx) : (tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) -> tensor<16xf32> {
  ^bb0(%a: tensor<4x16x16x16xf32>, %m: tensor<16xf32>, %i: tensor<16xf32>, %s: tensor<16xf32>, %b: tensor<16xf32>, %g: tensor<4x16x16x16xbf16>):
    %ms = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %centred = mpt.sub %a, %ms : tensor<4x16x16x16xf32>
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
    %r0 = mpt.reduce sum %gw {axes = array<i64: 0, 2, 3>} : (tensor<4x16x16x16xf32>) -> tensor<16xf32>
    mpt.yield %r0 : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}

// FP32 keeps its own sums.
// CHECK-LABEL: func.func @wide
// CHECK: library.conv backward_data
// WHY: library-fuse-gradient-sums: {{.*}}: no channel sums: expected tensors of one 16-bit type, got others
func.func @wide(%dy: tensor<4x8x16x16xf32>, %w: tensor<8x16x3x3xf32>, %x: tensor<4x16x16x16xf32>, %mean: tensor<16xf32>, %inverse: tensor<16xf32>, %scale: tensor<16xf32>, %shift: tensor<16xf32>) -> tensor<16xf32> {
  %dx = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf32>, tensor<8x16x3x3xf32>) -> tensor<4x16x16x16xf32>
  %r = mpt.fusion(%x, %mean, %inverse, %scale, %shift, %dx) : (tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xf32>) -> tensor<16xf32> {
  ^bb0(%a: tensor<4x16x16x16xf32>, %m: tensor<16xf32>, %i: tensor<16xf32>, %s: tensor<16xf32>, %b: tensor<16xf32>, %g: tensor<4x16x16x16xf32>):
    %ms = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %centred = mpt.sub %a, %ms : tensor<4x16x16x16xf32>
    %is = mpt.broadcast %i {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %normal = mpt.mul %centred, %is : tensor<4x16x16x16xf32>
    %ss = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %scaled = mpt.mul %normal, %ss : tensor<4x16x16x16xf32>
    %bs = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<4x16x16x16xf32>
    %shifted = mpt.add %scaled, %bs : tensor<4x16x16x16xf32>
    %relu = mpt.relu %shifted : tensor<4x16x16x16xf32>
    %masked = mpt.relu_backward %g, %relu : tensor<4x16x16x16xf32>
    %r0 = mpt.reduce sum %masked {axes = array<i64: 0, 2, 3>} : (tensor<4x16x16x16xf32>) -> tensor<16xf32>
    mpt.yield %r0 : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}
