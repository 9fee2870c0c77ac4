// RUN: mpt-opt %s --library-fuse-channel-sums=channel-unit=8 | FileCheck %s
// RUN: mpt-opt %s --library-fuse-channel-sums=channel-unit=8 --debug-only=library-fuse-channel-sums 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// RUN: mpt-opt %s --library-fuse-channel-sums="channel-unit=8 code-all" --debug-only=library-fuse-channel-sums 2>&1 >/dev/null | FileCheck %s --check-prefix=CODES

// Activations that wait as codes are not in memory for the backward pass.
// CODES: library-fuse-channel-sums: {{.*}}: no channel sums: expected an input of the norm that waits as it is, got one that waits as codes

// The call leaves both sums. The norm takes them where they are sound, and reads the result where they are not.
// CHECK-LABEL: func.func @norm
// CHECK: %[[Y:.*]], %[[SUMS:.*]]:2 = library.conv forward %arg0, %arg1 {{.*}} -> tensor<4x64x16x16xf16> sums tensor<64xf32>, tensor<64xf32>
// CHECK: mpt.cast %[[SUMS]]#0 : tensor<64xf32> to tensor<64xf64>
// CHECK: mpt.cast %[[SUMS]]#1 : tensor<64xf32> to tensor<64xf64>
// CHECK: %[[SOUND:.*]] = mpt.compare ge
// CHECK: %[[MEAN:.*]] = mpt.reduce mean
// CHECK: %[[ONE:.*]] = mpt.select %[[SOUND]], %{{.*}}, %[[MEAN]]
// CHECK: %[[SQUARE:.*]] = mpt.reduce mean
// CHECK: mpt.select %[[SOUND]], %{{.*}}, %[[SQUARE]]
// CHECK: %[[M:.*]] = mpt.cast %[[ONE]] : tensor<64xf64> to tensor<64xf32>
// CHECK-NOT: mpt.reduce
// CHECK: mpt.broadcast %[[M]]
// CHECK: return %{{.*}}, %[[M]], %
func.func @norm(%x: tensor<4x8x16x16xf16>, %w: tensor<64x8x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}

// Operands of 8 bits become FP16 later.
// CHECK-LABEL: func.func @eight
// CHECK: library.conv forward {{.*}} sums
func.func @eight(%x: tensor<4x8x16x16xf8E5M2>, %w: tensor<64x8x3x3xf8E5M2>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf8E5M2>, tensor<64x8x3x3xf8E5M2>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}

// FP32 keeps its own sums.
// CHECK-LABEL: func.func @wide
// CHECK: mpt.conv
// CHECK: mpt.batch_norm
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected tensors of one 16-bit type, got others
func.func @wide(%x: tensor<4x8x16x16xf32>, %w: tensor<64x8x3x3xf32>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf32>, tensor<64x8x3x3xf32>) -> tensor<4x64x16x16xf32>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf32>, tensor<64xf32>, tensor<64xf32>
}

// Channels that libraries do not take.
// CHECK-LABEL: func.func @three
// CHECK: mpt.conv
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected channels in multiples of 8, got others
func.func @three(%x: tensor<4x3x16x16xf16>, %w: tensor<64x3x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xf16>, tensor<64x3x3x3xf16>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}

// CHECK-LABEL: func.func @groups
// CHECK: mpt.conv
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected a convolution without groups, got one with groups
func.func @groups(%x: tensor<4x16x16x16xf16>, %w: tensor<64x8x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 2 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x16x16x16xf16>, tensor<64x8x3x3xf16>) -> tensor<4x64x16x16xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<4x64x16x16xf16>, tensor<64xf32>, tensor<64xf32>
}

// Another pass over so little costs nothing.
// CHECK-LABEL: func.func @small
// CHECK: mpt.conv
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected 64 elements a channel and 8192 in all, got fewer
func.func @small(%x: tensor<1x8x4x4xf16>, %w: tensor<64x8x3x3xf16>, %s: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<1x64x4x4xf16>, tensor<64xf32>, tensor<64xf32>) {
  %c = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<1x8x4x4xf16>, tensor<64x8x3x3xf16>) -> tensor<1x64x4x4xf16>
  %y, %m, %v = mpt.batch_norm %c, %s, %b {epsilon = 1.0e-5} : (tensor<1x64x4x4xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<1x64x4x4xf16>, tensor<64xf32>, tensor<64xf32>)
  return %y, %m, %v : tensor<1x64x4x4xf16>, tensor<64xf32>, tensor<64xf32>
}

// Both sums come with the gradient; they are taken unless they are NaN. What the norm's input gets follows from the
// same two.
// CHECK-LABEL: func.func @gradient
// CHECK: %[[INVERSE:.*]] = mpt.rsqrt
// CHECK: %[[G:.*]], %[[SUMS:.*]]:2 = library.conv backward_data %arg0, %arg1 norm %arg2, %[[MEAN:.*]], %[[INVERSE]], %arg3, %arg4 : {{.*}}train.part = #train<part backward>{{.*}} -> tensor<4x16x16x16xbf16> sums tensor<16xf32>, tensor<16xf32>
// CHECK: %[[MASKED:.*]] = mpt.relu_backward %[[G]]
// CHECK-DAG: %[[FIRST:.*]] = mpt.cast %[[SUMS]]#0 : tensor<16xf32> to tensor<16xf64>
// CHECK-DAG: %[[SECOND:.*]] = mpt.cast %[[SUMS]]#1 : tensor<16xf32> to tensor<16xf64>
// CHECK: %[[SOUND:.*]] = mpt.compare eq
// CHECK: %[[WIDE:.*]] = mpt.cast %[[MASKED]]
// CHECK: %[[R0:.*]] = mpt.reduce sum %[[WIDE]]
// CHECK: %[[K0:.*]] = mpt.cast %[[FIRST]]
// CHECK: mpt.select %[[SOUND]], %[[K0]], %[[R0]]
// CHECK: %[[R1:.*]] = mpt.reduce sum
// CHECK: %[[K1:.*]] = mpt.cast %[[SECOND]]
// CHECK: mpt.select %[[SOUND]], %[[K1]], %[[R1]]
// CHECK: %[[R2:.*]] = mpt.reduce sum
// CHECK: %[[K2:.*]] = mpt.cast %[[SECOND]]
// CHECK: mpt.select %[[SOUND]], %[[K2]], %[[R2]]
// CHECK: %[[R3:.*]] = mpt.reduce sum %[[WIDE]]
// CHECK: %[[K3:.*]] = mpt.cast %[[FIRST]]
// CHECK: mpt.select %[[SOUND]], %[[K3]], %[[R3]]
// CHECK-NOT: mpt.reduce
func.func @gradient(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xbf16>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>, train.part = #train<part backward>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %ds, %db : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>
}

// A reader that does not mask the gradient wants all of it, so that the library may not leave it masked.
// CHECK-LABEL: func.func @unmasked
// CHECK: mpt.conv_backward_data
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected every reader to mask it by the ReLU of one batch norm, got another reader
func.func @unmasked(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xbf16>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %n = mpt.neg %g : tensor<4x16x16x16xbf16>
  return %dx, %ds, %db, %n : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>
}

// A kernel that writes the masked gradient reads all of it anyway.
// CHECK-LABEL: func.func @written
// CHECK: mpt.conv_backward_data
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected the gradient of the norm alone to read the masked gradient, got another reader
func.func @written(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>) {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xbf16>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %n = mpt.neg %masked : tensor<4x16x16x16xbf16>
  return %dx, %ds, %db, %n : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<4x16x16x16xbf16>
}

// The ReLU of something else.
// CHECK-LABEL: func.func @other
// CHECK: mpt.conv_backward_data
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected every reader to mask it by the ReLU of one batch norm, got another reader
func.func @other(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %x : tensor<4x16x16x16xbf16>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %ds, %db : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>
}

// CHECK-LABEL: func.func @late
// CHECK: mpt.conv_backward_data
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected the norm before the convolution, got it behind
func.func @late(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) {
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %ds, %db : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>
}

// A kernel that squares its operand need not write the square.
// CHECK-LABEL: func.func @squares
// CHECK: mpt.conv_backward_data
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected parts of the norm that are in memory, got one that its readers make
func.func @squares(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %x: tensor<4x16x16x16xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) {
  %sum = mpt.mul %x, %x : tensor<4x16x16x16xbf16>
  %y, %m, %v = mpt.batch_norm %sum, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xbf16>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %sum, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %ds, %db : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>
}

// FP32 keeps its own sums.
// CHECK-LABEL: func.func @wide_gradient
// CHECK: mpt.conv_backward_data
// WHY: library-fuse-channel-sums: {{.*}}: no channel sums: expected tensors of one 16-bit type, got others
func.func @wide_gradient(%dy: tensor<4x8x16x16xf32>, %w: tensor<8x16x3x3xf32>, %x: tensor<4x16x16x16xf32>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xf32>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xf32>, tensor<8x16x3x3xf32>) -> tensor<4x16x16x16xf32>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xf32>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %v {epsilon = 1.0e-5} : (tensor<4x16x16x16xf32>, tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %ds, %db : tensor<4x16x16x16xf32>, tensor<16xf32>, tensor<16xf32>
}
