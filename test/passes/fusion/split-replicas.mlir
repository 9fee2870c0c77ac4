// RUN: split-file %s %t
// RUN: mpt-opt %t/step.mlir --fusion-split-replicas | FileCheck %s
// RUN: mpt-opt %t/alone.mlir --fusion-split-replicas | FileCheck %s --check-prefix=ALONE

// A step without collectives stays.
// ALONE: func.func @step

//--- step.mlir
// Before the replicas meet: their own inputs, no state. After: the reductions, shared inputs, every write.
// CHECK-NOT: @step
// CHECK: func.func @combine(%[[RATE:.*]]: tensor<4xf32> {mpt.name = "rate"}, %[[SUM:.*]]: tensor<4xf32> {mpt.name = "replica.sum.0"}, %[[MAX:.*]]: tensor<4xf32> {mpt.name = "replica.max.1"}) -> (tensor<4xf32> {mpt.name = "largest"})
// CHECK: mpt.mul %[[SUM]], %[[RATE]]
// CHECK: train.write @w
// CHECK: return %[[MAX]]
// CHECK: func.func @replica(%{{.*}}: tensor<8x4xf32> {dist.split, mpt.name = "x"}) -> (tensor<4xf32> {mpt.name = "replica.sum.0"}, tensor<4xf32> {mpt.name = "replica.max.1"})
// CHECK-NOT: train.
// CHECK: return %[[G:.*]], %[[G]]
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

//--- alone.mlir
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
