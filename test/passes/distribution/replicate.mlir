// RUN: split-file %s %t
// RUN: mpt-opt %t/step.mlir --distribution-replicate=replicas=4 | FileCheck %s
// RUN: mpt-opt %t/step.mlir --distribution-replicate=replicas=any | FileCheck %s --check-prefix=ANY
// RUN: mpt-opt %t/step.mlir --distribution-replicate="replicas=4 reduce-type=bf16" | FileCheck %s --check-prefix=NARROW
// RUN: not mpt-opt %t/step.mlir --distribution-replicate="replicas=4 reduce-type=f8" 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: mpt-opt %t/step.mlir --distribution-replicate | FileCheck %s --check-prefix=ONE
// RUN: mpt-opt %t/inputs.mlir --distribution-replicate=replicas=2 | FileCheck %s --check-prefix=INPUTS
// RUN: mpt-opt %t/inputs.mlir --distribution-replicate="replicas=2 shared=ma.k" | FileCheck %s --check-prefix=WHOLE
// RUN: not mpt-opt %t/inputs.mlir --distribution-replicate="replicas=2 shared=(" 2>&1 | FileCheck %s --check-prefix=REGEX
// RUN: not mpt-opt %t/step.mlir --distribution-replicate=replicas=0 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not mpt-opt %t/accumulate.mlir --distribution-replicate=replicas=2 2>&1 | FileCheck %s --check-prefix=ACCUMULATE
// RUN: not mpt-opt %t/scalars.mlir --distribution-replicate=replicas=2 2>&1 | FileCheck %s --check-prefix=SCALARS
// RUN: not mpt-opt %t/wide.mlir --distribution-replicate=replicas=2 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: not mpt-opt %t/nothing.mlir --distribution-replicate=replicas=2 2>&1 | FileCheck %s --check-prefix=NOTHING

// Labels may be flat: [batch * length]. An input without one row a sample has to be named.
// INPUTS: @step(%{{.*}}: tensor<2x3xf32> {dist.split, mpt.name = "x"}, %{{.*}}: tensor<6xi64> {dist.split, mpt.name = "labels"}, %{{.*}}: tensor<4x4xf32> {dist.split, mpt.name = "mask"}, %{{.*}}: tensor<3xf32> {mpt.name = "odd"}, %{{.*}}: tensor<f32> {mpt.name = "rate"})
// WHOLE: @step(%{{.*}}: tensor<2x3xf32> {dist.split, mpt.name = "x"}, %{{.*}}: tensor<6xi64> {dist.split, mpt.name = "labels"}, %{{.*}}: tensor<4x4xf32> {mpt.name = "mask"}
// REGEX: expected a regular expression for shared inputs, got '('
// ONE-NOT: shard
// ANY: shard.grid @replicas(shape = ?)
// ANY: tensor<f32> {mpt.name = "replica.count", train.role = #train<role replica_count>}
// Gradients are rounded and added in FP32; losses and statistics are not rounded.
// NARROW: %[[G:.*]] = mpt.reduce sum %{{.*}} -> tensor<4xf32>
// NARROW: %[[ROUNDED:.*]] = mpt.cast %[[G]] : tensor<4xf32> to tensor<4xbf16>
// NARROW: %[[SUM:.*]] = shard.all_reduce %[[ROUNDED]] on @replicas grid_axes = [0] : tensor<4xbf16> -> tensor<4xf32>
// NARROW: mpt.div %[[SUM]]
// NARROW-NOT: xbf16
// TYPE: expected f32 or bf16 as type of gradients that travel, got 'f8'
// ZERO: expected 1 to 32767 replicas or any, got '0'
// ACCUMULATE: expected a step without micro-steps
// SCALARS: expected an input whose first dimension is the batch, found scalars
// WIDE: expected the gradient of 'w' in f32 or narrower, got f64
// NOTHING: expected gradients of parameters in the step, found none

//--- step.mlir
// Rows are split, other inputs shared. Random ops on the way to the gradient draw by the number of the replica; a weight
// that is rounded by chance does not. The generator itself moves on as before.
// CHECK: shard.grid @replicas(shape = 4)
// CHECK: func.func @step(%[[X:.*]]: tensor<8x4xf32> {dist.split, mpt.name = "x"}, %[[M:.*]]: tensor<4xf32> {mpt.name = "mask"}, %[[N:.*]]: tensor<i64> {mpt.name = "replica.number", train.role = #train<role replica_number>})
// CHECK: %[[KEY:.*]] = train.read @rng
// CHECK-DAG: %[[BOTH:.*]] = mpt.broadcast %[[N]]
// CHECK-DAG: %[[FAR:.*]] = mpt.constant dense<[0, 281474976710656]>
// CHECK: %[[APART:.*]] = mpt.mul %[[BOTH]], %[[FAR]]
// CHECK: %[[MINE:.*]] = mpt.add %[[KEY]], %[[APART]]
// CHECK: %[[D:.*]] = mpt.dropout %{{.*}}, %[[MINE]]
// A scale is the smallest of all replicas.
// CHECK: %[[NEGATIVE:.*]] = mpt.neg %[[D]]
// CHECK: %[[MOST:.*]] = shard.all_reduce %[[NEGATIVE]] on @replicas grid_axes = [0] reduction = max
// CHECK: %[[LEAST:.*]] = mpt.neg %[[MOST]]
// CHECK: mpt.cast %{{.*}} key %[[KEY]]
// The mean over replicas stands before the marker: all that looks at the gradient sees it.
// CHECK: %[[G:.*]] = mpt.reduce
// CHECK: %[[SUM:.*]] = shard.all_reduce %[[G]] on @replicas grid_axes = [0] : tensor<4xf32>
// CHECK: %[[FOUR:.*]] = mpt.constant dense<4.000000e+00>
// CHECK: %[[MEAN:.*]] = mpt.div %[[SUM]], %[[FOUR]]
// A statistic is the mean, and so is the loss; a history takes the largest.
// CHECK: %[[STATISTIC:.*]] = mpt.div
// CHECK: %[[LOSS:.*]] = mpt.div
// CHECK: train.gradient @w, %[[MEAN]]
// CHECK: %[[LARGEST:.*]] = shard.all_reduce %{{.*}} on @replicas grid_axes = [0] reduction = max : tensor<1xf32>
// CHECK: train.roll %{{.*}}, %[[LARGEST]]
// A check of a replica's own values holds where it holds for all; the gradient is the same anyway.
// CHECK: %[[OWN:.*]] = train.all_finite %[[D]] : (tensor<8x4xf32>)
// CHECK: %[[BAD:.*]] = mpt.select %[[OWN]]
// CHECK: %[[WORST:.*]] = shard.all_reduce %[[BAD]] on @replicas grid_axes = [0] reduction = max : tensor<f32>
// CHECK: %[[SHARED:.*]] = train.all_finite %{{.*}} : (tensor<4xf32>)
// CHECK: %[[HOLDS:.*]] = mpt.compare
// CHECK: %[[ALL:.*]] = mpt.and %[[SHARED]], %[[HOLDS]]
// CHECK: train.write @w, %{{.*}} if %[[ALL]]
// CHECK: train.write @s, %[[STATISTIC]]
// CHECK: train.write @f, %[[LEAST]]
// The generator's state is the same everywhere, and written as before.
// CHECK: train.write @rng
// CHECK: return %[[LOSS]]
module {
  train.state rng @rng : tensor<2xi64> = dense<0> : tensor<2xi64>
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  train.state statistic @s : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  train.state scale @f : tensor<8x4xf32> = dense<1.0> : tensor<8x4xf32>
  train.state statistic @h : tensor<1x3xf32> = dense<1.0> : tensor<1x3xf32>
  func.func @step(%x: tensor<8x4xf32> {mpt.name = "x"}, %m: tensor<4xf32> {mpt.name = "mask"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
    %key = train.read @rng : tensor<2xi64>
    %w = train.read @w : tensor<4xf32>
    %d = mpt.dropout %x, %key {ratio = 0.5 : f64, stream = 0 : i64} : (tensor<8x4xf32>, tensor<2xi64>) -> tensor<8x4xf32>
    %n = mpt.cast %w key %key : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 1 : i64} : tensor<4xf32> to tensor<4xf16>
    %c = mpt.cast %n : tensor<4xf16> to tensor<4xf32>
    %g = mpt.reduce sum %d {axes = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %gc = mpt.mul %g, %c : tensor<4xf32>
    %loss = mpt.reduce sum %gc {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
    %gradient = train.gradient @w, %g : tensor<4xf32>
    %h = train.read @h : tensor<1x3xf32>
    %largest = mpt.reshape %loss : (tensor<f32>) -> tensor<1xf32>
    %rolled = train.roll %h, %largest : tensor<1x3xf32>, tensor<1xf32>
    %one = mpt.constant dense<[0, 1]> : tensor<2xi64>
    %next = mpt.add %key, %one : tensor<2xi64>
    %finite = train.all_finite %gradient, %d : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<i1>
    train.write @w, %gradient if %finite : tensor<i1> : tensor<4xf32>
    train.write @s, %gc : tensor<4xf32>
    train.write @h, %rolled : tensor<1x3xf32>
    train.write @f, %d : tensor<8x4xf32>
    train.write @rng, %next : tensor<2xi64>
    return %loss : tensor<f32>
  }
}

//--- inputs.mlir
module {
  train.state parameter @w : tensor<2x3xf32> = dense<1.0> : tensor<2x3xf32>
  func.func @step(%x: tensor<2x3xf32> {mpt.name = "x"}, %l: tensor<6xi64> {mpt.name = "labels"}, %m: tensor<4x4xf32> {mpt.name = "mask"}, %o: tensor<3xf32> {mpt.name = "odd"}, %r: tensor<f32> {mpt.name = "rate"}) {
    %g = train.gradient @w, %x : tensor<2x3xf32>
    return
  }
}

//--- accumulate.mlir
func.func @accumulate() {
  return
}
func.func @step(%x: tensor<8x4xf32>) {
  return
}

//--- scalars.mlir
module {
  train.state parameter @w : tensor<f32> = dense<1.0> : tensor<f32>
  func.func @step(%x: tensor<f32>) {
    %g = train.gradient @w, %x : tensor<f32>
    return
  }
}

//--- wide.mlir
module {
  train.state parameter @w : tensor<4xf64> = dense<1.0> : tensor<4xf64>
  func.func @step(%x: tensor<4xf64>) {
    %g = train.gradient @w, %x : tensor<4xf64>
    return
  }
}

//--- nothing.mlir
func.func @step(%x: tensor<4xf32>) {
  return
}
