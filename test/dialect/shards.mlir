// RUN: split-file %s %t
// RUN: mpt-opt %t/rows.mlir --distribution-verify-replicas | FileCheck %s --check-prefix=ROWS
// RUN: not mpt-opt %t/gather.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=GATHER
// RUN: not mpt-opt %t/slice.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=SLICE
// RUN: not mpt-opt %t/axis.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not mpt-opt %t/whole.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not mpt-opt %t/part.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=PART
// RUN: not mpt-opt %t/own.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: mpt-opt %t/shards.mlir --distribution-verify-replicas | FileCheck %s --check-prefix=SHARDS

// --distribution-verify-replicas on shards: they become states that are divided, or are gathered.
// GATHER: expected a row of the replica's own to gather, got a value that is the same on every replica
// ROWS: shard.all_gather
// SLICE: expected a shard of a value that is the same on every replica, got one that varies
// AXIS: expected 0 as its scatter_axis, got 1
// WHOLE: expected a value that is the same on every replica for state 'w', got one that is computed from a replica's shard
// PART: expected a condition that is the same on every replica for state 'm', got one that is computed from a replica's shard
// OWN: expected a value that is computed from shards for state 'm', got one that depends on 'x' without a collective
// SHARDS: train.write @m
// SHARDS: train.write @w

//--- gather.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %r = mpt.slice %x {sizes = array<i64: 1, 16>, starts = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<2x16xf32>) -> tensor<1x16xf32>
    %s = shard.all_reduce %r on @replicas grid_axes = [0] : tensor<1x16xf32> -> tensor<1x16xf32>
    %0 = shard.all_gather %s on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x16xf32> -> tensor<2x16xf32>
    return
  }
}

//--- rows.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %r = mpt.slice %x {sizes = array<i64: 1, 16>, starts = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<2x16xf32>) -> tensor<1x16xf32>
    %0 = shard.all_gather %r on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x16xf32> -> tensor<2x16xf32>
    return
  }
}

//--- slice.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %0 = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<2x16xf32> -> tensor<2x16xf32>
    %1 = shard.all_slice %x on @replicas grid_axes = [0] slice_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    return
  }
}

//--- axis.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %0 = shard.reduce_scatter %x on @replicas grid_axes = [0] scatter_axis = 1 : tensor<2x16xf32> -> tensor<2x8xf32>
    return
  }
}

//--- whole.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %s = shard.reduce_scatter %x on @replicas grid_axes = [0] scatter_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    %r = mpt.reshape %s : (tensor<1x16xf32>) -> tensor<16xf32>
    %b = mpt.concat %r, %r {axis = 0 : i64} : (tensor<16xf32>, tensor<16xf32>) -> tensor<32xf32>
    train.write @w, %b : tensor<32xf32>
    return
  }
}

//--- part.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %s = shard.reduce_scatter %x on @replicas grid_axes = [0] scatter_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    %r = mpt.reshape %s : (tensor<1x16xf32>) -> tensor<16xf32>
    %f = train.all_finite %r : (tensor<16xf32>) -> tensor<i1>
    train.write @m, %r if %f : tensor<i1> : tensor<16xf32>
    return
  }
}

//--- own.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %s = shard.reduce_scatter %x on @replicas grid_axes = [0] scatter_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    %r = mpt.reshape %s : (tensor<1x16xf32>) -> tensor<16xf32>
    %o = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<2x16xf32>) -> tensor<16xf32>
    %n = mpt.add %r, %o : tensor<16xf32>
    train.write @m, %n : tensor<16xf32>
    return
  }
}

//--- shards.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<32xf32> = dense<1.0> : tensor<32xf32>
  train.state slot @m : tensor<32xf32> of "w" = dense<1.0> : tensor<32xf32> {dist.shard = 16 : i64}
  func.func @step(%x: tensor<2x16xf32> {dist.split, mpt.name = "x"}) {
    %s = shard.reduce_scatter %x on @replicas grid_axes = [0] scatter_axis = 0 : tensor<2x16xf32> -> tensor<1x16xf32>
    %r = mpt.reshape %s : (tensor<1x16xf32>) -> tensor<16xf32>
    %m = train.read @m : tensor<16xf32>
    %n = mpt.add %m, %r : tensor<16xf32>
    train.write @m, %n : tensor<16xf32>
    %row = mpt.reshape %n : (tensor<16xf32>) -> tensor<1x16xf32>
    %all = shard.all_gather %row on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x16xf32> -> tensor<2x16xf32>
    %w = mpt.reshape %all : (tensor<2x16xf32>) -> tensor<32xf32>
    train.write @w, %w : tensor<32xf32>
    return
  }
}
