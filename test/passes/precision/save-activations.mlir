// RUN: mpt-opt %s --precision-assign=policy=fp8-e5m2-saved --precision-insert-casts --precision-quantize --precision-save-activations | FileCheck %s
// RUN: mpt-opt %s --precision-assign=policy=fp8-e5m2 --precision-insert-casts --precision-quantize --precision-save-activations | FileCheck %s --check-prefix=NONE
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=fp8-e5m2-saved --precision-insert-casts --precision-master-weights --precision-quantize --precision-save-activations | FileCheck %s --check-prefix=GEMMS
// RUN: not mpt-opt %s --precision-assign=policy=%S/Inputs/bad-saved-type.mlir 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not mpt-opt %s --precision-assign=policy=%S/Inputs/bad-saved-scales.mlir 2>&1 | FileCheck %s --check-prefix=SCALES

// TYPE: C5: expected 'f16' (the storage type), f8E4M3FN or f8E5M2 for saved, got 'bf16'
// SCALES: C5: expected no tensor_scaling beside saved = 'f8E5M2', since saved activations have no scales

// Without `saved` the gradient reads the forward pass's operand.
// NONE-LABEL: func.func @gradients
// NONE: mpt.gelu %[[X:.*]] {
// NONE: mpt.gelu_backward %{{.*}}, %[[X]]

// The last layer computes in the storage type: its gradient of weights reads no 8-bit activation.
// GEMMS-LABEL: func.func @step
// GEMMS: %[[LAST:.*]] = mpt.matmul {{.*}} : (tensor<8x16xf8E5M2>, tensor<16x16xf8E5M2>) -> tensor<8x16xf16>
// GEMMS-NOT: mpt.cast %[[LAST]]
// GEMMS: mpt.matmul %[[LAST]], %{{.*}} transpose_a = true

module {
  train.state parameter @a : tensor<4x4xf32> = dense<0.5> : tensor<4x4xf32>
  train.state parameter @b : tensor<4x4xf32> = dense<0.5> : tensor<4x4xf32>
  train.state parameter @c : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
  // A rounding serves the GEMM and the gradient; a value that is rounded to the storage type is rounded once; the input, a
  // scalar and a wide value stay as they are.
  // CHECK-LABEL: func.func @gradients
  // CHECK-SAME: %[[INPUT:[a-z0-9]+]]: tensor<8x4xf32>
  // CHECK: %[[IN:.*]] = mpt.cast %[[INPUT]] : tensor<8x4xf32> to tensor<8x4xf16>
  // CHECK-NOT: mpt.cast %[[IN]]
  // CHECK: %[[X:.*]] = mpt.matmul %[[IN]]
  // CHECK: %[[SAVED:.*]] = mpt.cast %[[X]] : tensor<8x4xf16> to tensor<8x4xf8E5M2>
  // CHECK: %[[READ:.*]] = mpt.cast %[[SAVED]] : tensor<8x4xf8E5M2> to tensor<8x4xf16>
  // CHECK: mpt.gelu %[[X]]
  // CHECK: %[[E:.*]] = mpt.exp {{.*}} : tensor<8x4xf32>
  // CHECK: mpt.gelu_backward %{{.*}}, %[[READ]]
  // CHECK: mpt.mul %{{.*}}, %[[E]] {{.*}} : tensor<8x4xf32>
  func.func @gradients(%x: tensor<8x4xf32>) -> (tensor<8x2xf32>, tensor<4x4xf32>, tensor<8x4xf32>) {
    %a = train.read @a : tensor<4x4xf32>
    %b = train.read @b : tensor<4x4xf32>
    %c = train.read @c : tensor<4x2xf32>
    %0 = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %1 = mpt.gelu %0 {form = #mpt<gelu_form tanh>} : tensor<8x4xf32>
    %2 = mpt.matmul %1, %b : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %e = mpt.exp %2 : tensor<8x4xf32>
    %3 = mpt.matmul %2, %c : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
    %dy = mpt.constant dense<1.0> : tensor<8x2xf32> {mpt.seed}
    %d2 = mpt.matmul %dy, %c {transpose_b = true} : (tensor<8x2xf32>, tensor<4x2xf32>) -> tensor<8x4xf32>
    %d1 = mpt.matmul %d2, %b {transpose_b = true} : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %d0 = mpt.gelu_backward %d1, %0 {form = #mpt<gelu_form tanh>} : tensor<8x4xf32>
    %dx = mpt.mul %d0, %e : tensor<8x4xf32>
    %da = mpt.matmul %x, %d0 {transpose_a = true} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    return %3, %da, %dx : tensor<8x2xf32>, tensor<4x4xf32>, tensor<8x4xf32>
  }

  // The gradient of a loss reads the logits that the loss read.
  // CHECK-LABEL: func.func @loss
  // CHECK: mpt.softmax_cross_entropy %[[LOGITS:[a-z0-9]+]],
  // CHECK: mpt.softmax_cross_entropy_backward %{{.*}}, %[[LOGITS]],
  func.func @loss(%x: tensor<8x4xf32>, %labels: tensor<8xi64>) -> (tensor<f32>, tensor<4x4xf32>) {
    %a = train.read @a : tensor<4x4xf32>
    %0 = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %loss, %lse, %total = mpt.softmax_cross_entropy %0, %labels {reduction = #mpt<loss_reduction mean>} : (tensor<8x4xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>)
    %seed = mpt.constant dense<1.0> : tensor<f32> {mpt.seed}
    %d0 = mpt.softmax_cross_entropy_backward %seed, %0, %labels, %lse, %total {reduction = #mpt<loss_reduction mean>} : (tensor<f32>, tensor<8x4xf32>, tensor<8xi64>, tensor<8xf32>, tensor<f32>) -> tensor<8x4xf32>
    %da = mpt.matmul %x, %d0 {transpose_a = true} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    return %loss, %da : tensor<f32>, tensor<4x4xf32>
  }
}
