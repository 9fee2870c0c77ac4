// RUN: mpt-opt %s --training-algorithms | FileCheck %s
// The file's momentum updates @w; its constant rate is the default of the input "learning_rate".
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>
train.state slot @w.v : tensor<3xf32> of "w" = dense<0.0> : tensor<3xf32>
train.state counter @T : tensor<i64> = dense<0> : tensor<i64>

// CHECK: func.func @evaluate(%{{.*}}: tensor<4x3xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>})
// CHECK: func.func @step(%{{.*}}: tensor<4x3xf32> {mpt.name = "x"}, %[[LR:.*]]: tensor<f32> {mpt.default = 5.000000e-01 : f64, mpt.name = "learning_rate"})
// CHECK-SAME: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "rate"})
// CHECK: train.scale_loss {{.*}}mpt.seed
// CHECK: %[[G:.*]] = train.gradient @w
// CHECK: %[[NEW:.*]], %[[SLOT:.*]] = mpt.momentum %{{.*}}, %[[G]], %[[LR]]
// CHECK: train.write @w, %[[NEW]]
// CHECK: train.write @w.v, %[[SLOT]]
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
