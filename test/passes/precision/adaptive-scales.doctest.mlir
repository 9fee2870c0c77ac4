// RUN: mpt-opt %s --precision-adaptive-scales | FileCheck %s
// The gradient starts with scale 1, gets one before it is rounded, and loses that before it is the parameter's.
// CHECK: %[[ONE:.*]] = mpt.constant dense<1.000000e+00> : tensor<f32>
// CHECK: %[[G:.*]] = train.scale_loss %{{.*}}, %[[ONE]]
// CHECK: %[[F:.*]] = train.cast_scale
// CHECK: %[[S:.*]] = mpt.mul %[[ONE]], %[[F]]
// CHECK: %[[R:.*]] = train.rescale %[[G]], %[[ONE]] to %[[S]]
// CHECK: mpt.cast %[[R]]
// CHECK: train.unscale %{{.*}}, %[[S]]
module attributes {mpt.policy = {loss_scaling = {mode = "adaptive", init = 1.0}}} {
  train.state parameter @w : tensor<4xf32>
  func.func @step() {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = mpt.cast %seed : tensor<4xf32> to tensor<4xf16>
    %1 = mpt.cast %0 : tensor<4xf16> to tensor<4xf32>
    %g = train.gradient @w, %1 : tensor<4xf32>
    return
  }
}
