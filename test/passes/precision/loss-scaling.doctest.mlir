// RUN: mpt-opt %s --precision-assign=policy=amp-f16 --precision-loss-scaling | FileCheck %s
// The seed is scaled, the gradient unscaled, and the write holds only if the gradient is finite.
// CHECK: train.state{{ +}}scale @mpt.loss_scale : tensor<f32>
// CHECK: %[[SCALE:.*]] = train.read @mpt.loss_scale
// CHECK: %[[SEED:.*]] = train.scale_loss %{{.*}}, %[[SCALE]]
// CHECK: %[[SCALED:.*]] = mpt.mul %[[SEED]], %arg0
// CHECK: %[[TRUE:.*]] = train.unscale %[[SCALED]], %[[SCALE]]
// CHECK: %[[G:.*]] = train.gradient @w, %[[TRUE]]
// CHECK: %[[FINITE:.*]] = train.all_finite %[[G]]
// CHECK: train.write @w, %{{.*}} if %[[FINITE]]
// CHECK: train.update_scale %[[SCALE]]
train.state parameter @w : tensor<f32> = dense<0.5> : tensor<f32>
func.func @step(%x: tensor<f32>, %lr: tensor<f32> {mpt.name = "learning_rate"}) {
  %w = train.read @w : tensor<f32>
  %seed = mpt.constant dense<1.0> : tensor<f32> {mpt.seed}
  %d = mpt.mul %seed, %x : tensor<f32>
  %g = train.gradient @w, %d : tensor<f32>
  %t = mpt.constant dense<1> : tensor<i64>
  %new = mpt.sgd %w, %g, %lr, %t : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>) -> tensor<f32>
  train.write @w, %new : tensor<f32>
  return
}
