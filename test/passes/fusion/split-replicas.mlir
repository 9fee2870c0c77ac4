// RUN: split-file %s %t
// RUN: mpt-opt %t/step.mlir --fusion-split-replicas | FileCheck %s
// RUN: mpt-opt %t/shards.mlir --fusion-split-replicas | FileCheck %s --check-prefix=SHARDS
// RUN: mpt-opt %t/kept.mlir --fusion-split-replicas | FileCheck %s --check-prefix=KEPT
// RUN: mpt-opt %t/alone.mlir --fusion-split-replicas | FileCheck %s --check-prefix=ALONE

// A step without collectives stays.
// ALONE: func.func @step

//--- step.mlir
// Before the replicas meet: their own inputs, no state. After: the reductions, shared inputs, every write.
// CHECK-NOT: @step
// CHECK: func.func @combine(%[[RATE:.*]]: tensor<4xf32> {mpt.name = "rate"}, %[[SUM:.*]]: tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}, %[[MAX:.*]]: tensor<4xf32> {mpt.name = "replica.max.1", train.role = #train<role max>}) -> (tensor<4xf32> {mpt.name = "largest"})
// CHECK: mpt.mul %[[SUM]], %[[RATE]]
// CHECK: train.write @w
// CHECK: return %[[MAX]]
// CHECK: func.func @replica(%{{.*}}: tensor<8x4xf32> {dist.split, mpt.name = "x"}) -> (tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}, tensor<4xf32> {mpt.name = "replica.max.1", train.role = #train<role max>})
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

//--- shards.mlir
// Three functions before the last: gradients; the shards' parts of a condition; the update of shards, which alone writes the
// divided state. A replica takes its part of a parameter by its number. The last function writes the gathered parameter.
// SHARDS-LABEL: func.func @combine(
// SHARDS-SAME: mpt.name = "replica.gather.2", train.role = #train<role gather>
// SHARDS-NOT: train.write @m
// SHARDS: train.write @w
// SHARDS-LABEL: func.func @between_2(
// SHARDS-SAME: tensor<1x16xf32> {mpt.name = "replica.scatter.0", train.role = #train<role scatter>}
// SHARDS-SAME: tensor<f32> {mpt.name = "replica.max.1", train.role = #train<role max>}
// SHARDS-SAME: tensor<i64> {mpt.name = "replica.number", train.role = #train<role replica_number>}
// SHARDS-SAME: -> (tensor<1x16xf32> {mpt.name = "replica.gather.2", train.role = #train<role gather>})
// SHARDS: train.write @m
// SHARDS: mpt.gather %{{.*}}, %{{.*}} {axis = 0 : i64} : (tensor<2x16xf32>, tensor<1xi64>) -> tensor<1x16xf32>
// SHARDS-NOT: train.write @w
// SHARDS-LABEL: func.func @between_1(
// SHARDS-SAME: tensor<1x16xf32> {mpt.name = "replica.scatter.0", train.role = #train<role scatter>}) -> (tensor<f32> {mpt.name = "replica.max.1", train.role = #train<role max>})
// SHARDS-NOT: train.write
// SHARDS-LABEL: func.func @replica(
// SHARDS-SAME: -> (tensor<2x16xf32> {mpt.name = "replica.scatter.0", train.role = #train<role scatter>})
// SHARDS-NOT: train.
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %w = train.read @w : tensor<32xf32>
    %rows = mpt.reshape %w : (tensor<32xf32>) -> tensor<2x16xf32>
    %g = mpt.neg %x : tensor<2x16xf32>
    %0 = shard.reduce_scatter %g on @replicas grid_axes = [0] scatter_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    %sum = mpt.reshape %0 : (tensor<1x16xf32>) -> tensor<16xf32>
    %largest = mpt.reduce max %sum {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
    %1 = shard.all_reduce %largest on @replicas grid_axes = [0] reduction = max : tensor<f32> -> tensor<f32>
    %scale = mpt.broadcast %1 {dims = array<i64>} : (tensor<f32>) -> tensor<16xf32>
    %m = train.read @m : tensor<16xf32>
    %scaled = mpt.mul %sum, %scale : tensor<16xf32>
    %next = mpt.add %m, %scaled : tensor<16xf32>
    train.write @m, %next : tensor<16xf32>
    %mine = shard.all_slice %rows on @replicas grid_axes = [0] slice_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    %step = mpt.reshape %next : (tensor<16xf32>) -> tensor<1x16xf32>
    %new = mpt.sub %mine, %step : tensor<1x16xf32>
    %2 = shard.all_gather %new on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x16xf32> -> tensor<2x16xf32>
    %whole = mpt.reshape %2 : (tensor<2x16xf32>) -> tensor<32xf32>
    train.write @w, %whole : tensor<32xf32>
    return
  }
}

//--- kept.mlir
// A sum that is waited for: values of the replica's rows that the first function computes and the second one needs are kept. The
// GEMM's result in FP16 is, and not the values in FP32 that are a cast away from it; rows that the caller has are read again;
// values that are the same on all replicas are computed again.
// KEPT-LABEL: func.func @combine(
// KEPT-SAME: mpt.name = "replica.sum.1", train.role = #train<role sum>
// KEPT-NOT: replica.kept
// KEPT-LABEL: func.func @between_1(
// KEPT-SAME: %[[X:[^:]*]]: tensor<8x4xf16> {dist.split, mpt.name = "x"}
// KEPT-SAME: %[[SUM:[^:]*]]: tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}
// KEPT-SAME: %[[KEPT:[^:]*]]: tensor<8x4xf16> {mpt.name = "replica.kept.0", train.role = #train<role kept>}
// KEPT-SAME: -> (tensor<4xf32> {mpt.name = "replica.sum.1", train.role = #train<role sum>})
// KEPT-NOT: mpt.matmul
// KEPT: train.read @w
// KEPT: mpt.cast %[[KEPT]]
// KEPT-LABEL: func.func @replica(
// KEPT-SAME: -> (tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}, tensor<8x4xf16> {mpt.name = "replica.kept.0", train.role = #train<role kept>})
// KEPT: %[[PRODUCT:.*]] = mpt.matmul
// KEPT: return %{{.*}}, %[[PRODUCT]]
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<4x4xf16> = dense<1.0> : tensor<4x4xf16>
  train.state parameter @b : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf16> {dist.split, mpt.name = "x"}) {
    %w = train.read @w : tensor<4x4xf16>
    %p = mpt.matmul %x, %w : (tensor<8x4xf16>, tensor<4x4xf16>) -> tensor<8x4xf16>
    %wide = mpt.cast %p : tensor<8x4xf16> to tensor<8x4xf32>
    %s = mpt.reduce sum %wide {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %s on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %c = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<4x4xf16>) -> tensor<4xf16>
    %cw = mpt.cast %c : tensor<4xf16> to tensor<4xf32>
    %1 = mpt.mul %0, %cw : tensor<4xf32>
    %2 = mpt.broadcast %1 {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<8x4xf32>
    %3 = mpt.mul %wide, %2 : tensor<8x4xf32>
    %xw = mpt.cast %x : tensor<8x4xf16> to tensor<8x4xf32>
    %4 = mpt.mul %3, %xw : tensor<8x4xf32>
    %5 = mpt.reduce sum %4 {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %6 = shard.all_reduce %5 on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    train.write @b, %6 : tensor<4xf32>
    return
  }
}
