// RUN: split-file %s %t
// RUN: mpt-opt %t/fine.mlir --distribution-verify-replicas | FileCheck %s
// RUN: not mpt-opt %t/value.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not mpt-opt %t/condition.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=CONDITION
// RUN: not mpt-opt %t/number.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not mpt-opt %t/result.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=RESULT
// RUN: not mpt-opt %t/axes.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=AXES
// RUN: not mpt-opt %t/narrow.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=NARROW
// RUN: mpt-opt %t/twice.mlir --distribution-verify-replicas | FileCheck %s --check-prefix=TWICE
// RUN: not mpt-opt %t/other.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not mpt-opt %t/grid.mlir --distribution-verify-replicas 2>&1 | FileCheck %s --check-prefix=GRID

// Values from a collective, from shared inputs and from states are the same everywhere.
// CHECK: train.write @w
// VALUE: expected a value that is the same on every replica for state 'w', got one that depends on 'x' without a collective
// CONDITION: expected a condition that is the same on every replica for state 'w', got one that depends on 'x' without a collective
// NUMBER: expected a value that is the same on every replica for state 'n', got one that depends on 'replica.number' without a collective
// RESULT: expected results that are the same on every replica, got 'sum', which depends on 'x'
// AXES: expected a collective over axis 0 of @replicas, got @other
// NARROW: expected replicas to reduce in f32, got
// A replica's term may depend on an earlier sum of all: each comes to both sums, in this order.
// TWICE-COUNT-2: shard.all_reduce
// OTHER: expected shard.all_reduce, reduce_scatter, all_gather or all_slice in a step, got shard.broadcast
// GRID: expected a grid @replicas of one axis

//--- fine.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) -> tensor<4xf32> {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %1 = mpt.mul %0, %m : tensor<4xf32>
    train.write @w, %1 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

//--- value.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %1 = mpt.mul %0, %g : tensor<4xf32>
    train.write @w, %1 : tensor<4xf32>
    return
  }
}

//--- condition.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %1 = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    train.write @w, %0 if %1 : tensor<i1> : tensor<4xf32>
    return
  }
}

//--- number.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state counter @n : tensor<i64> = dense<0> : tensor<i64>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}, %r: tensor<i64> {mpt.name = "replica.number", train.role = #train<role replica_number>}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    train.write @n, %r : tensor<i64>
    return
  }
}

//--- result.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) -> (tensor<4xf32> {mpt.name = "sum"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    return %g : tensor<4xf32>
  }
}

//--- axes.mlir
module {
  shard.grid @replicas(shape = 4)
  shard.grid @other(shape = 2)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @other grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    return
  }
}

//--- narrow.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %h = mpt.cast %g : tensor<4xf32> to tensor<4xf16>
    %0 = shard.all_reduce %h on @replicas grid_axes = [0] : tensor<4xf16> -> tensor<4xf16>
    return
  }
}

//--- twice.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %1 = mpt.mul %0, %g : tensor<4xf32>
    %2 = shard.all_reduce %1 on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    return
  }
}

//--- other.mlir
module {
  shard.grid @replicas(shape = 4)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %1 = shard.broadcast %g on @replicas grid_axes = [0] root = [0] : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

//--- grid.mlir
module {
  shard.grid @other(shape = 2)
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) {
    %g = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %0 = shard.all_reduce %g on @other grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    return
  }
}
