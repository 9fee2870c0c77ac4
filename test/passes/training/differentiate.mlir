// RUN: split-file %s %t
// RUN: mpt-opt %t/shared.mlir --training-differentiate | FileCheck %s --check-prefix=SHARED
// RUN: mpt-opt %t/frozen.mlir --training-differentiate 2>&1 | FileCheck %s --check-prefix=FROZEN
// RUN: mpt-opt %t/streams.mlir --training-differentiate | FileCheck %s --check-prefix=STREAMS
// RUN: mpt-opt %t/slices.mlir --training-differentiate | FileCheck %s --check-prefix=SLICES
// RUN: mpt-opt %t/no-parameter.mlir --training-differentiate 2>&1 | FileCheck %s --check-prefix=NO-PARAMETER
// RUN: not mpt-opt %t/no-rule.mlir --training-differentiate 2>&1 | FileCheck %s --check-prefix=NO-RULE
// RUN: not mpt-opt %t/no-loss.mlir --training-differentiate 2>&1 | FileCheck %s --check-prefix=NO-LOSS

// Two reads are one parameter; its contributions are summed.
// SHARED-COUNT-1: train.read @w
// SHARED: %[[D1:.*]] = mpt.mul %{{.*}}, %[[W:.*]] :
// SHARED: %[[SUM:.*]] = mpt.add %{{.*}}, %{{.*}} : tensor<3xf32>
// SHARED: train.gradient @w, %[[SUM]]
// SHARED-NOT: train.gradient
//--- shared.mlir
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>
func.func @forward() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %a = train.read @w : tensor<3xf32>
  %b = train.read @w : tensor<3xf32>
  %y = mpt.mul %a, %b : tensor<3xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
// Slices that lie side by side give back their concatenation; with a gap, zeros are put around each.
// SLICES: mpt.pad
// SLICES-NEXT: mpt.pad
// SLICES-NEXT: mpt.add
// SLICES-NEXT: train.gradient @v
// SLICES-NEXT: mpt.concat %{{.*}}, %{{.*}}, %{{.*}} {axis = 1 : i64} : {{.*}} -> tensor<2x6xf32>
// SLICES-NEXT: train.gradient @w
//--- slices.mlir
train.state parameter @w : tensor<2x6xf32> = dense<0.5> : tensor<2x6xf32>
train.state parameter @v : tensor<2x6xf32> = dense<0.5> : tensor<2x6xf32>
func.func @forward() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %v = train.read @v : tensor<2x6xf32>
  %w = train.read @w : tensor<2x6xf32>
  %a = mpt.slice %w {starts = array<i64: 0, 0>, sizes = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %b = mpt.slice %w {starts = array<i64: 0, 2>, sizes = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %c = mpt.slice %w {starts = array<i64: 0, 4>, sizes = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %d = mpt.slice %v {starts = array<i64: 0, 0>, sizes = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %e = mpt.slice %v {starts = array<i64: 0, 4>, sizes = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x6xf32>) -> tensor<2x2xf32>
  %ab = mpt.mul %a, %b : tensor<2x2xf32>
  %de = mpt.mul %d, %e : tensor<2x2xf32>
  %abc = mpt.mul %ab, %c : tensor<2x2xf32>
  %y = mpt.mul %abc, %de : tensor<2x2xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<2x2xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
// Nothing is built for the frozen parameter; the unused one is reported; other results are dropped.
// FROZEN: warning: the loss does not depend on parameter 'u': it is not trained
// FROZEN: func.func @step() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>})
// FROZEN-NOT: train.gradient @f
// FROZEN: %[[SEED:.*]] = train.scale_loss
// FROZEN: %[[G:.*]] = mpt.mul %[[SEED]]
// FROZEN: train.gradient @w, %[[G]]
// FROZEN-NOT: train.gradient
// FROZEN-NOT: mpt.exp
//--- frozen.mlir
train.state parameter @w : tensor<f32> = dense<0.5> : tensor<f32>
train.state parameter @u : tensor<f32> = dense<0.5> : tensor<f32>
train.state parameter @f : tensor<f32> = dense<0.5> : tensor<f32> frozen
func.func @forward() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "other"}) {
  %w = train.read @w : tensor<f32>
  %f = train.read @f : tensor<f32>
  %u = train.read @u : tensor<f32>
  %y = mpt.mul %w, %f : tensor<f32>
  %other = mpt.exp %u : tensor<f32>
  return %y, %other : tensor<f32>, tensor<f32>
}
// Each stream draws its own numbers, the same in both directions and in all ops of it, and the next step others.
// STREAMS: %[[KEY:.*]] = train.read @mpt.rng
// STREAMS: mpt.dropout %{{.*}}, %[[KEY]] {{.*}}stream = 0
// STREAMS: mpt.dropout %{{.*}}, %[[KEY]] {{.*}}stream = 1
// STREAMS: mpt.dropout %{{.*}}, %[[KEY]] {{.*}}stream = 0
// STREAMS: %[[ONE:.*]] = mpt.constant dense<[0, 1]>
// STREAMS: %[[NEXT:.*]] = mpt.add %[[KEY]], %[[ONE]]
// STREAMS: train.write @mpt.rng, %[[NEXT]]
// STREAMS: mpt.dropout %{{.*}}, %[[KEY]] {{.*}}stream = 0
// STREAMS: mpt.dropout %{{.*}}, %[[KEY]] {{.*}}stream = 1
// STREAMS: mpt.dropout %{{.*}}, %[[KEY]] {{.*}}stream = 0
//--- streams.mlir
train.state parameter @w : tensor<4xf32> = dense<0.5> : tensor<4xf32>
train.state rng @mpt.rng : tensor<2xi64> = dense<[7, 0]> : tensor<2xi64>
func.func @forward() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %w = train.read @w : tensor<4xf32>
  %key = train.read @mpt.rng : tensor<2xi64>
  %a = mpt.dropout %w, %key {ratio = 0.5, stream = 7} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  %b = mpt.dropout %a, %key {ratio = 0.5, stream = 3} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  %c = mpt.dropout %b, %key {ratio = 0.5, stream = 7} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  %loss = mpt.reduce sum %c {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
// NO-RULE: no-rule.mlir:[[#]]:{{.*}} error: no gradient for builtin.unrealized_conversion_cast: it has neither a gradient rule nor a decomposition
//--- no-rule.mlir
train.state parameter @w : tensor<f32> = dense<0.5> : tensor<f32>
func.func @forward() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %w = train.read @w : tensor<f32>
  %y = builtin.unrealized_conversion_cast %w : tensor<f32> to tensor<f32>
  return %y : tensor<f32>
}
// NO-LOSS: error: expected @forward to return a scalar float of role loss first
//--- no-loss.mlir
func.func @forward(%x: tensor<2xf32>) -> (tensor<2xf32> {mpt.name = "loss", train.role = #train<role loss>}) {
  return %x : tensor<2xf32>
}

// NO-PARAMETER: warning: expected parameters to train, found none: the step changes nothing
//--- no-parameter.mlir
func.func @forward(%x: tensor<3xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %y = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
  return %y : tensor<f32>
}
