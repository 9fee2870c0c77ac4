// RUN: mpt-opt %s --precision-verify --split-input-file --verify-diagnostics
// A gradient must not carry the loss scale, and carries it once where it is unscaled.
train.state parameter @w : tensor<4xf32>
func.func @missing(%x: tensor<4xf32>, %scale: tensor<f32>) {
  %0 = train.scale_loss %x, %scale : tensor<4xf32>, tensor<f32>
  // expected-error @below {{expected an unscaled gradient of w, got one that carries the loss scale: train.unscale is missing}}
  %g = train.gradient @w, %0 : tensor<4xf32>
  return
}

// -----

train.state parameter @w : tensor<4xf32>
func.func @right(%x: tensor<4xf32>, %scale: tensor<f32>) {
  %0 = train.scale_loss %x, %scale : tensor<4xf32>, tensor<f32>
  %1 = train.unscale %0, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %g = train.gradient @w, %1 : tensor<4xf32>
  return
}
