// RUN: mpt-opt %s --precision-assign=policy=fp8-e5m2-saved --precision-insert-casts --precision-quantize --precision-save-activations | FileCheck %s
// The operand of GELU's gradient waits in 8 bits; GELU itself reads 16.
// CHECK: %[[X:.*]] = mpt.matmul {{.*}} -> tensor<8x4xf16>
// CHECK: %[[SAVED:.*]] = mpt.cast %[[X]] : tensor<8x4xf16> to tensor<8x4xf8E5M2>
// CHECK: %[[READ:.*]] = mpt.cast %[[SAVED]] : tensor<8x4xf8E5M2> to tensor<8x4xf16>
// CHECK: mpt.gelu %[[X]]
// CHECK: mpt.gelu_backward %{{.*}}, %[[READ]]
module {
  train.state parameter @a : tensor<4x4xf32> = dense<0.5> : tensor<4x4xf32>
  train.state parameter @b : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
  func.func @gradients(%x: tensor<8x4xf32>) -> (tensor<8x2xf32>, tensor<4x4xf32>) {
    %a = train.read @a : tensor<4x4xf32>
    %b = train.read @b : tensor<4x2xf32>
    %0 = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %1 = mpt.gelu %0 {form = #mpt<gelu_form tanh>} : tensor<8x4xf32>
    %2 = mpt.matmul %1, %b : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
    %dy = mpt.constant dense<1.0> : tensor<8x2xf32> {mpt.seed}
    %d1 = mpt.matmul %dy, %b {transpose_b = true} : (tensor<8x2xf32>, tensor<4x2xf32>) -> tensor<8x4xf32>
    %d0 = mpt.gelu_backward %d1, %0 {form = #mpt<gelu_form tanh>} : tensor<8x4xf32>
    %da = mpt.matmul %x, %d0 {transpose_a = true} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    return %2, %da : tensor<8x2xf32>, tensor<4x4xf32>
  }
}
