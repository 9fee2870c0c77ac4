// RUN: mpt-opt %s --fusion-split-replicas | FileCheck %s
// The example of docs/generated/passes.md: a step becomes two functions.
// CHECK: func.func @combine
// CHECK: func.func @replica
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "rate"}) -> (tensor<4xf32> {mpt.name = "largest"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %w = train.read @w : tensor<4xf32>
    %1 = mpt.mul %0, %m : tensor<4xf32>
    %2 = mpt.sub %w, %1 : tensor<4xf32>
    %3 = shard.all_reduce %g on @replicas grid_axes = [0] reduction = max : tensor<4xf32> -> tensor<4xf32>
    train.write @w, %2 : tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
