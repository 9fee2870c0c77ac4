// RUN: mpt-opt %s --distribution-shard-optimizer | FileCheck %s
// The example of docs/generated/passes.md: each of two replicas updates its half.
// CHECK: shard.reduce_scatter
// CHECK: train.read @w.m : tensor<32xf32>
// CHECK: mpt.sgd
// CHECK: shard.all_gather
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<64xf32> = dense<1.0> : tensor<64xf32>
  train.state slot @w.m : tensor<64xf32> of "w" = dense<0.0> : tensor<64xf32>
  func.func @step(%x: tensor<64xf32> {dist.split}, %lr: tensor<f32>, %n: tensor<i64>) {
    %w = train.read @w : tensor<64xf32>
    %m = train.read @w.m : tensor<64xf32>
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<64xf32> -> tensor<64xf32>
    %two = mpt.constant dense<2.0> : tensor<64xf32>
    %mean = mpt.div %sum, %two : tensor<64xf32>
    %g = train.gradient @w, %mean : tensor<64xf32>
    %new, %next = mpt.sgd %w, %g, %lr, %n, %m {momentum = 0.9 : f64} : (tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<i64>, tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>)
    train.write @w, %new : tensor<64xf32>
    train.write @w.m, %next : tensor<64xf32>
    return
  }
}
