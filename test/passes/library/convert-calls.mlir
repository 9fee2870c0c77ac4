// RUN: mpt-opt %s --library-convert-calls | FileCheck %s

// Types, transposes and numerics go along; a GEMM that is one already stays.
// CHECK-LABEL: func.func @gemms
// CHECK: %[[Y:.*]] = library.gemm %arg0, %arg1 {numerics = #mpt.numerics<in = f16, acc = f32, out = f32>, train.part = #train<part backward>, transpose_a = true} : tensor<2x8x4xf16>, tensor<2x8x16xf16> -> tensor<2x4x16xf32>
// CHECK-NEXT: %[[G:.*]] = library.gemm %arg2, %arg3 {epilogue = #library.epilogue<activation = gelu_tanh>} : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
// CHECK-NEXT: return %[[Y]], %[[G]]
func.func @gemms(%a: tensor<2x8x4xf16>, %b: tensor<2x8x16xf16>, %c: tensor<4x8xbf16>, %d: tensor<8x16xbf16>) -> (tensor<2x4x16xf32>, tensor<4x16xbf16>) {
  %y = mpt.matmul %a, %b {train.part = #train<part backward>, numerics = #mpt.numerics<in = f16, acc = f32, out = f32>, transpose_a = true} : (tensor<2x8x4xf16>, tensor<2x8x16xf16>) -> tensor<2x4x16xf32>
  %g = library.gemm %c, %d {epilogue = #library.epilogue<activation = gelu_tanh>} : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
  return %y, %g : tensor<2x4x16xf32>, tensor<4x16xbf16>
}

// Of a convolution and its gradients the kind says which tensor is made.
// CHECK-LABEL: func.func @convolutions
// CHECK: %[[Y:.*]] = library.conv forward %arg0, %arg1 {{.*}} : tensor<2x1x8x8xf32>, tensor<8x1x3x3xf32> -> tensor<2x8x6x6xf32>
// CHECK: library.conv backward_data %[[Y]], %arg1 {{.*}}train.part = #train<part backward>
// CHECK: library.conv backward_weights %arg0, %[[Y]] {{.*}}numerics = #mpt.numerics<in = f32, acc = f64, out = f32>
func.func @convolutions(%x: tensor<2x1x8x8xf32>, %w: tensor<8x1x3x3xf32>) -> (tensor<2x1x8x8xf32>, tensor<8x1x3x3xf32>) {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x1x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<2x8x6x6xf32>
  %dx = mpt.conv_backward_data %y, %w {train.part = #train<part backward>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x8x6x6xf32>, tensor<8x1x3x3xf32>) -> tensor<2x1x8x8xf32>
  %dw = mpt.conv_backward_weights %x, %y {numerics = #mpt.numerics<in = f32, acc = f64, out = f32>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x1x8x8xf32>, tensor<2x8x6x6xf32>) -> tensor<8x1x3x3xf32>
  return %dx, %dw : tensor<2x1x8x8xf32>, tensor<8x1x3x3xf32>
}
