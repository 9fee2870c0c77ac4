// RUN: mpt-opt %s --training-adopt-backward | FileCheck %s
// The results of a joint graph become a marked gradient; the seed is the constant that the loss's gradient begins with.
module attributes {onnx.training = {loss = "loss", backward = "file", gradients = {w_grad = @w}, next = {}}} {
  train.state parameter @w : tensor<4xf32> = dense<0.5> : tensor<4xf32>

  // CHECK: func.func @forward({{.*}}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>})
  // CHECK: func.func @step({{.*}}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>})
  // CHECK: %[[SEED:.*]] = train.scale_loss %{{.*}} {mpt.seed}
  // CHECK: %[[C:.*]] = mpt.broadcast %[[SEED]]
  // CHECK: %[[G:.*]] = mpt.mul %[[C]], %arg0
  // CHECK: train.gradient @w, %[[G]]
  func.func @forward(%x: tensor<4xf32> {mpt.name = "x"})
      -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<4xf32>
    %y = mpt.mul %w, %x : tensor<4xf32>
    %l = mpt.reduce mean %y {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
    %c = mpt.constant dense<0.25> : tensor<4xf32>
    %dw = mpt.mul %c, %x : tensor<4xf32>
    return %l, %dw : tensor<f32>, tensor<4xf32>
  }
}
