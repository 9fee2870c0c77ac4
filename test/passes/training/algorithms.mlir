// RUN: mpt-opt %s --split-input-file --training-algorithms=updates=false | FileCheck %s --check-prefix=OWN
// RUN: mpt-opt %s --split-input-file --training-algorithms=clip-norm=2.0 | FileCheck %s --check-prefix=CLIP
// RUN: not mpt-opt %S/evaluate.mlir --training-algorithms 2>&1 | FileCheck %s --check-prefix=NONE
// Without the file's updates the gradients stay for another optimizer, and its optimizer state is gone.
// OWN-NOT: @w.v
// OWN-NOT: @T
// OWN: func.func @step(%{{[^,]*}}: tensor<4x3xf32> {mpt.name = "x"}) ->
// OWN: train.gradient @w
// OWN-NOT: train.write
// OWN-NOT: mpt.momentum

// CLIP: func.func @step
// CLIP-SAME: {mpt.name = "grad_norm", train.role = #train<role grad_norm>}
// CLIP: %[[G:.*]] = train.gradient @w
// CLIP: train.global_norm %[[G]]
// CLIP: %[[C:.*]] = mpt.mul %[[G]]
// CLIP: mpt.momentum %{{.*}}, %[[C]]
// NONE: error: expected @forward and an algorithm, @algorithm.0
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>
train.state slot @w.v : tensor<3xf32> of "w" = dense<0.0> : tensor<3xf32>
train.state counter @T : tensor<i64> = dense<0> : tensor<i64>
func.func @forward(%x: tensor<4x3xf32> {mpt.name = "x"}) -> (tensor<1xf32> {mpt.name = "cost"}) {
  %w = train.read @w : tensor<3xf32>
  %wide = mpt.broadcast %w {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3xf32>
  %xw = mpt.mul %x, %wide : tensor<4x3xf32>
  %sum = mpt.reduce sum %xw {axes = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<f32>
  %cost = mpt.reshape %sum : (tensor<f32>) -> tensor<1xf32>
  return %cost : tensor<1xf32>
}
func.func @algorithm.0(%x: tensor<4x3xf32> {mpt.name = "x"}) -> (tensor<1xf32> {mpt.name = "cost"}, tensor<f32> {mpt.name = "rate"}) attributes {mpt.name = "algorithm"} {
  %w = train.read @w : tensor<3xf32>
  %v = train.read @w.v : tensor<3xf32>
  %done = train.read @T : tensor<i64>
  %rate = mpt.constant dense<0.5> : tensor<f32>
  %wide = mpt.broadcast %w {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3xf32>
  %xw = mpt.mul %x, %wide : tensor<4x3xf32>
  %sum = mpt.reduce sum %xw {axes = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<f32>
  %cost = mpt.reshape %sum : (tensor<f32>) -> tensor<1xf32>
  %g = train.derive %cost of (%w) : (tensor<1xf32>, tensor<3xf32>) -> tensor<3xf32>
  %new, %slot = mpt.momentum %w, %g, %rate, %done, %v {alpha = 0.9, beta = 1.0} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  train.write @w, %new : tensor<3xf32>
  train.write @w.v, %slot : tensor<3xf32>
  return %cost, %rate : tensor<1xf32>, tensor<f32>
}

// -----
// Frozen parameters stay, and so does their state; a loss that the algorithm computes leaves a model that predicts.
// OWN: func.func @predict
// CLIP: func.func @predict(%{{.*}}) -> (tensor<3xf32> {mpt.name = "y"})
// CLIP: func.func @step
// CLIP-NOT: train.write
// CLIP: return
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32> frozen
func.func @forward(%x: tensor<3xf32> {mpt.name = "x"}) -> (tensor<3xf32> {mpt.name = "y"}) {
  %w = train.read @w : tensor<3xf32>
  %y = mpt.mul %x, %w : tensor<3xf32>
  return %y : tensor<3xf32>
}
func.func @algorithm.0(%x: tensor<3xf32> {mpt.name = "x"}) -> (tensor<3xf32> {mpt.name = "y"}) attributes {mpt.name = "algorithm"} {
  %w = train.read @w : tensor<3xf32>
  %y = mpt.mul %x, %w : tensor<3xf32>
  %loss = mpt.mul %y, %y : tensor<3xf32>
  %g = train.derive %loss of (%w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %new = mpt.sub %w, %g : tensor<3xf32>
  train.write @w, %new : tensor<3xf32>
  return %y : tensor<3xf32>
}
