// RUN: not mpt-opt %s --distribution-verify-replicas 2>&1 | FileCheck %s
// The example of docs/generated/passes.md: each replica would write its own sum.
// CHECK: expected a value that is the same on every replica for state 'w', got one that depends on 'x' without a collective
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    train.write @w, %g : tensor<4xf32>
    return
  }
}
