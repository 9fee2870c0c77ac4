// RUN: mpt-opt %s --precision-adaptive-scales --precision-widen-reductions --precision-verify | FileCheck %s
// The loss's backward pass would deliver f16 itself, and an extreme weight of the loss be lost in it: it delivers f32, which
// gets a scale and is rounded then.
// CHECK-LABEL: func.func @entropy
// CHECK: %[[G:.*]] = train.scale_loss %{{.*}}, %[[ONE:[^ ]+]]
// CHECK: %[[W:.*]] = mpt.mul %[[G]]
// CHECK: %[[D:.*]] = mpt.softmax_cross_entropy_backward %[[W]], {{.*}} -> tensor<8x4xf32>
// CHECK: train.log_moments %[[D]]
// CHECK: %[[F:.*]] = train.cast_scale
// CHECK: %[[S:.*]] = mpt.mul %[[ONE]], %[[F]]
// CHECK: %[[R:.*]] = train.rescale %[[D]], %[[ONE]] to %[[S]] : (tensor<8x4xf32>, tensor<f32>, tensor<f32>) -> tensor<8x4xf16>
// CHECK: mpt.matmul %{{.*}}, %[[R]]
// CHECK: train.unscale %{{.*}}, %[[S]]
module attributes {mpt.policy = {loss_scaling = {mode = "adaptive", init = 1.0}}} {
  train.state parameter @w : tensor<16x4xf32>
  func.func @entropy(%x: tensor<8x16xf16>, %labels: tensor<8xi64>) {
    %w = train.read @w : tensor<16x4xf32>
    %n = mpt.cast %w : tensor<16x4xf32> to tensor<16x4xf16>
    %y = mpt.matmul %x, %n : (tensor<8x16xf16>, tensor<16x4xf16>) -> tensor<8x4xf16>
    %loss, %lse, %total = mpt.softmax_cross_entropy %y, %labels {reduction = #mpt<loss_reduction mean>} : (tensor<8x4xf16>, tensor<8xi64>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>)
    %seed = mpt.constant dense<1.0> : tensor<f32> {mpt.seed}
    %weight = mpt.constant dense<1.0e-8> : tensor<f32>
    %0 = mpt.mul %seed, %weight : tensor<f32>
    %1 = mpt.softmax_cross_entropy_backward %0, %y, %labels, %lse, %total {reduction = #mpt<loss_reduction mean>} : (tensor<f32>, tensor<8x4xf16>, tensor<8xi64>, tensor<8xf32>, tensor<f32>) -> tensor<8x4xf16>
    %2 = mpt.matmul %x, %1 {transpose_a = true} : (tensor<8x16xf16>, tensor<8x4xf16>) -> tensor<16x4xf32>
    %g = train.gradient @w, %2 : tensor<16x4xf32>
    return
  }
}
