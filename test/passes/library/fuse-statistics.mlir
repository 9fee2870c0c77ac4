// RUN: mpt-opt %s --library-convert-calls --library-fuse-statistics=channel-unit=8 | FileCheck %s
// RUN: mpt-opt %s --library-convert-calls --library-fuse-statistics=channel-unit=8 --debug-only=library-fuse-statistics 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// The call leaves both sums. The kernel takes them where they are sound, and reads the result where they are not.
// CHECK-LABEL: func.func @norm
// CHECK: %[[Y:.*]], %[[SUMS:.*]]:2 = library.conv forward %arg0, %arg1 {{.*}} -> tensor<4x64x16x16xf16> sums tensor<64xf32>, tensor<64xf32>
// CHECK: mpt.fusion(%[[Y]], %[[SUMS]]#0, %[[SUMS]]#1)
// CHECK: %[[SOUND:.*]] = mpt.compare ge
// CHECK: %[[MEAN:.*]] = mpt.reduce mean
// CHECK: mpt.select %[[SOUND]], %{{.*}}, %[[MEAN]]
// CHECK: %[[SQUARE:.*]] = mpt.reduce mean
// CHECK: mpt.select %[[SOUND]], %{{.*}}, %[[SQUARE]]
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

// FP32 keeps its own sums.
// CHECK-LABEL: func.func @wide
// CHECK: library.conv
// CHECK-NOT: sums
// WHY: library-fuse-statistics: {{.*}}: no channel sums: expected tensors of one 16-bit type, got others
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

// Channels that libraries do not take.
// CHECK-LABEL: func.func @three
// CHECK: library.conv
// CHECK-NOT: sums
// WHY: library-fuse-statistics: {{.*}}: no channel sums: expected channels in multiples of 8, got others
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

// CHECK-LABEL: func.func @groups
// CHECK: library.conv
// CHECK-NOT: sums
// WHY: library-fuse-statistics: {{.*}}: no channel sums: expected a convolution without groups, got one with groups
func.func @groups(%x: tensor<4x16x16x16xf16>, %w: tensor<64x8x3x3xf16>) -> (tensor<64xf64>, tensor<64xf64>) {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 2 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x16x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
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

// Another pass over so little costs nothing.
// CHECK-LABEL: func.func @small
// CHECK: library.conv
// CHECK-NOT: sums
// WHY: library-fuse-statistics: {{.*}}: no channel sums: expected 64 elements a channel and 8192 in all, got fewer
func.func @small(%x: tensor<1x8x4x4xf16>, %w: tensor<64x8x3x3xf16>) -> (tensor<64xf64>, tensor<64xf64>) {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x8x4x4xf16>, tensor<64x8x3x3xf16>) -> tensor<1x64x4x4xf16>
  %r:2 = mpt.fusion(%y) : (tensor<1x64x4x4xf16>) -> (tensor<64xf64>, tensor<64xf64>) {
  ^bb0(%a: tensor<1x64x4x4xf16>):
    %d = mpt.cast %a : tensor<1x64x4x4xf16> to tensor<1x64x4x4xf64>
    %m = mpt.reduce mean %d {axes = array<i64: 0, 2, 3>} : (tensor<1x64x4x4xf64>) -> tensor<64xf64>
    %d2 = mpt.mul %d, %d : tensor<1x64x4x4xf64>
    %e = mpt.reduce mean %d2 {axes = array<i64: 0, 2, 3>} : (tensor<1x64x4x4xf64>) -> tensor<64xf64>
    mpt.yield %m, %e : tensor<64xf64>, tensor<64xf64>
  }
  return %r#0, %r#1 : tensor<64xf64>, tensor<64xf64>
}

// Reductions of another kind.
// CHECK-LABEL: func.func @largest
// CHECK: library.conv
// CHECK-NOT: sums
// WHY: library-fuse-statistics: {{.*}}: no channel sums: expected a kernel that makes nothing but means and mean squares by channel of it, got none
func.func @largest(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>) -> tensor<64xf16> {
  %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %r = mpt.fusion(%y) : (tensor<4x64x16x16xf16>) -> tensor<64xf16> {
  ^bb0(%a: tensor<4x64x16x16xf16>):
    %m = mpt.reduce max %a {axes = array<i64: 0, 2, 3>} : (tensor<4x64x16x16xf16>) -> tensor<64xf16>
    mpt.yield %m : tensor<64xf16>
  }
  return %r : tensor<64xf16>
}
