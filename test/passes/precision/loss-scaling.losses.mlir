// RUN: mpt-opt %s --precision-loss-scaling --precision-verify | FileCheck %s
// Two losses, a scale each. A gradient of one of them alone loses that one's scale and tells about it; where their gradients meet
// they go on with the smaller scale. A step is skipped as a whole.
// CHECK-DAG: scale @mpt.loss_scale.image : tensor<f32> = dense<1.024000e+03>
// CHECK-DAG: scale @mpt.loss_scale.label : tensor<f32> = dense<1.024000e+03>
// CHECK-DAG: scale @mpt.good_steps.image
// CHECK-DAG: scale @mpt.hysteresis.label
// CHECK-LABEL: func.func @step
// CHECK: %[[SA:.*]] = train.read @mpt.loss_scale.image
// CHECK: %[[SB:.*]] = train.read @mpt.loss_scale.label
// CHECK: %[[S:.*]] = mpt.min %[[SA]], %[[SB]]
// CHECK: %[[A:.*]] = train.scale_loss %{{.*}}, %[[SA]]
// CHECK: %[[B:.*]] = train.scale_loss %{{.*}}, %[[SB]]
// CHECK: %[[UH:.*]] = train.unscale %[[A]], %[[SA]]
// CHECK: %[[GH:.*]] = train.gradient @head, %[[UH]]
// CHECK: %[[RA:.*]] = train.rescale %[[A]], %[[SA]] to %[[S]]
// CHECK: %[[RB:.*]] = train.rescale %[[B]], %[[SB]] to %[[S]]
// CHECK: %[[BOTH:.*]] = mpt.add %[[RA]], %[[RB]]
// CHECK: %[[UT:.*]] = train.unscale %[[BOTH]], %[[S]]
// CHECK: %[[GT:.*]] = train.gradient @trunk, %[[UT]]
// CHECK: %[[FA:.*]] = train.all_finite %[[GH]]
// CHECK: %[[FB:.*]] = train.all_finite :
// CHECK: %[[ALONE:.*]] = mpt.and %[[FA]], %[[FB]]
// CHECK: %[[SHARED:.*]] = train.all_finite %[[GT]]
// CHECK: %[[NOT:.*]] = mpt.not %[[ALONE]]
// CHECK: %[[EXCUSED:.*]] = mpt.or %[[SHARED]], %[[NOT]]
// CHECK: %[[OKA:.*]] = mpt.and %[[FA]], %[[EXCUSED]]
// CHECK: %[[OKB:.*]] = mpt.and %[[FB]], %[[EXCUSED]]
// CHECK: %[[FINITE:.*]] = mpt.and %[[ALONE]], %[[SHARED]]
// CHECK: train.write @head, %{{.*}} if %[[FINITE]]
// CHECK: train.write @trunk, %{{.*}} if %[[FINITE]]
// CHECK: %[[LEAST:.*]] = mpt.min %[[SA]], %[[SB]]
// CHECK: train.update_scale %[[SA]], %{{.*}}, %{{.*}}, %[[OKA]]
// CHECK: train.write @mpt.loss_scale.image
// CHECK: train.update_scale %[[SB]], %{{.*}}, %{{.*}}, %[[OKB]]
// CHECK: train.write @mpt.loss_scale.label
// CHECK: return %[[LEAST]], %{{.*}} : tensor<f32>, tensor<i1>
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic", init = 1024.0}}} {
  train.state parameter @head : tensor<4xf32>
  train.state parameter @trunk : tensor<4xf32>
  func.func @step() {
    %one = mpt.constant dense<1.0> : tensor<f32>
    %x = mpt.constant dense<1.0> : tensor<4xf32>
    %w = mpt.constant dense<0.5> : tensor<4xf32>
    %a = train.scale_loss %x, %one {mpt.seed = "image"} : tensor<4xf32>, tensor<f32>
    %b = train.scale_loss %w, %one {mpt.seed = "label"} : tensor<4xf32>, tensor<f32>
    %0 = train.gradient @head, %a : tensor<4xf32>
    train.write @head, %0 : tensor<4xf32>
    %1 = mpt.add %a, %b : tensor<4xf32>
    %2 = train.gradient @trunk, %1 : tensor<4xf32>
    train.write @trunk, %2 : tensor<4xf32>
    return
  }
}
