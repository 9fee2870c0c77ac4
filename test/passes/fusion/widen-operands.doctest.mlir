// RUN: mpt-opt %s --fusion-widen-operands | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[Q:.*]] = mpt.cast %arg0
// CHECK: %[[H:.*]] = mpt.cast %[[Q]] : tensor<8x16x9x9xf8E5M2> to tensor<8x16x9x9xf16>
// CHECK: mpt.conv_backward_data %[[H]], %arg1
func.func @gradient(%x: tensor<8x16x9x9xf32>, %w: tensor<16x4x3x3xf16>) -> tensor<8x4x9x9xf32> {
  %q = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<8x16x9x9xf32> to tensor<8x16x9x9xf8E5M2>
  %d = mpt.conv_backward_data %q, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x9x9xf8E5M2>, tensor<16x4x3x3xf16>) -> tensor<8x4x9x9xf32>
  return %d : tensor<8x4x9x9xf32>
}
