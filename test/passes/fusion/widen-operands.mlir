// RUN: mpt-opt %s --fusion-widen-operands=native-float8 "--fusion-form=shared-sums column-outputs kept-rows bundles memory-bound" | FileCheck %s
// RUN: mpt-opt %s --fusion-widen-operands "--fusion-form=shared-sums column-outputs kept-rows bundles memory-bound" | FileCheck %s --check-prefix=WIDE
// RUN: mpt-opt %s --fusion-widen-operands=native-float8 --debug-only=fusion-widen-operands 2>&1 >/dev/null | FileCheck %s --check-prefix=NATIVE
// NATIVE: fusion-widen-operands: {{.*}}: not widened: expected operands that no library call takes, got 8-bit ones of a GEMM

// One kernel quantizes and widens; nothing else reads the 8-bit gradient, which is not written. The forward pass's
// operand is kept in 8 bits, and widened again when the backward pass wants it.
// CHECK-LABEL: func.func @step
// CHECK: %[[X:.*]]:2 = mpt.fusion(%arg0) : (tensor<8x16x9x9xf32>) -> (tensor<8x16x9x9xf8E4M3FN>, tensor<8x16x9x9xf16>)
// CHECK: %[[Y:.*]] = mpt.conv %[[X]]#1, %arg1
// CHECK: %[[G:.*]] = mpt.fusion({{.*}}) : ({{.*}}) -> tensor<8x4x9x9xf16>
// CHECK: %[[AGAIN:.*]] = mpt.fusion(%[[X]]#0) : (tensor<8x16x9x9xf8E4M3FN>) -> tensor<8x16x9x9xf16>
// CHECK: mpt.conv_backward_weights %[[AGAIN]], %[[G]]
// CHECK: mpt.conv_backward_data %[[G]], %arg1
func.func @step(%x: tensor<8x16x9x9xf32>, %w: tensor<4x16x3x3xf16>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<4x16x3x3xf32>, tensor<8x16x9x9xf32>) {
  %q = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<8x16x9x9xf32> to tensor<8x16x9x9xf8E4M3FN>
  %y = mpt.conv %q, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x9x9xf8E4M3FN>, tensor<4x16x3x3xf16>) -> tensor<8x4x9x9xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1, 2, 3>} : (tensor<8x4x9x9xf32>) -> tensor<f32>
  %b = mpt.broadcast %loss {dims = array<i64>} : (tensor<f32>) -> tensor<8x4x9x9xf32>
  %dy = mpt.mul %y, %b : tensor<8x4x9x9xf32>
  %g = mpt.cast %dy {overflow = #mpt<overflow saturate>} : tensor<8x4x9x9xf32> to tensor<8x4x9x9xf8E5M2>
  %dw = mpt.conv_backward_weights %q, %g {train.part = #train<part backward>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x9x9xf8E4M3FN>, tensor<8x4x9x9xf8E5M2>) -> tensor<4x16x3x3xf32>
  %dx = mpt.conv_backward_data %g, %w {train.part = #train<part backward>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x4x9x9xf8E5M2>, tensor<4x16x3x3xf16>) -> tensor<8x16x9x9xf32>
  return %loss, %dw, %dx : tensor<f32>, tensor<4x16x3x3xf32>, tensor<8x16x9x9xf32>
}

// GEMMs that libraries take keep 8 bits: extents in sixteens, not both E5M2. The conversion goes before views.
// CHECK-LABEL: func.func @gemm
// CHECK: %[[E:.*]]:2 = mpt.fusion(%arg0) : (tensor<4x16x64xf32>) -> (tensor<4x16x64xf8E4M3FN>, tensor<4x16x64xf16>)
// CHECK: mpt.matmul %{{.*}}, %arg1 : (tensor<64x64xf8E4M3FN>, tensor<64x32xf8E5M2>)
// CHECK: %[[R:.*]] = mpt.reshape %[[E]]#1
// CHECK: mpt.matmul %[[R]], %{{.*}} : (tensor<64x64xf16>, tensor<64x32xf16>)
// WIDE-LABEL: func.func @gemm
// WIDE-NOT: mpt.matmul {{.*}}f8
func.func @gemm(%x: tensor<4x16x64xf32>, %w: tensor<64x32xf8E5M2>) -> (tensor<64x32xf32>, tensor<64x32xf32>) {
  %q = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<4x16x64xf32> to tensor<4x16x64xf8E4M3FN>
  %r = mpt.reshape %q : (tensor<4x16x64xf8E4M3FN>) -> tensor<64x64xf8E4M3FN>
  %y = mpt.matmul %r, %w : (tensor<64x64xf8E4M3FN>, tensor<64x32xf8E5M2>) -> tensor<64x32xf32>
  %e = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<4x16x64xf32> to tensor<4x16x64xf8E5M2>
  %s = mpt.reshape %e : (tensor<4x16x64xf8E5M2>) -> tensor<64x64xf8E5M2>
  %z = mpt.matmul %s, %w : (tensor<64x64xf8E5M2>, tensor<64x32xf8E5M2>) -> tensor<64x32xf32>
  return %y, %z : tensor<64x32xf32>, tensor<64x32xf32>
}
