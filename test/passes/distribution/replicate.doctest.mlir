// RUN: mpt-opt %s --distribution-replicate=replicas=2 | FileCheck %s
// The example of docs/generated/passes.md: the gradient is the mean over two replicas.
// CHECK: %[[SUM:.*]] = shard.all_reduce %{{.*}} on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
// CHECK: %[[MEAN:.*]] = mpt.div %[[SUM]]
// CHECK: train.gradient @w, %[[MEAN]]
module {
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %loss = mpt.reduce sum %g {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
    %gradient = train.gradient @w, %g : tensor<4xf32>
    train.write @w, %gradient : tensor<4xf32>
    return %loss : tensor<f32>
  }
}
