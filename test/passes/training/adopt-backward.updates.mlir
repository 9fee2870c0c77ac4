// RUN: mpt-opt %s --training-adopt-backward --split-input-file 2>&1 | FileCheck %s

// Of an update that the file writes out, the gradient is the value through which all that it knows of the batch comes: not the
// product with the rate, and not the clipped one.
// CHECK-LABEL: func.func @step
// CHECK: %[[SEED:.*]] = train.scale_loss
// CHECK: %[[G:.*]] = mpt.matmul %arg0, %{{.*}} {transpose_a = true}
// CHECK: %[[MARKED:.*]] = train.gradient @w, %[[G]]
// CHECK: mpt.clamp %[[MARKED]]
module attributes {onnx.training = {loss = "loss", backward = "file", gradients = {}, next = {w_next = @w}}} {
  train.state parameter @w : tensor<2x2xf32> = dense<0.5> : tensor<2x2xf32>
  func.func @forward(%x: tensor<2x2xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<2x2xf32> {mpt.name = "w_next"}) {
    %w = train.read @w : tensor<2x2xf32>
    %y = "mpt.matmul"(%x, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %l = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<2x2xf32>) -> tensor<f32>
    %c = mpt.constant dense<1.0> : tensor<2x2xf32>
    %g = "mpt.matmul"(%x, %c) {transpose_a = true} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %clipped = mpt.clamp %g {low = -1.0 : f64, high = 1.0 : f64} : tensor<2x2xf32>
    %rate = mpt.constant dense<0.1> : tensor<2x2xf32>
    %move = mpt.mul %clipped, %rate : tensor<2x2xf32>
    %kept = mpt.constant dense<0.999> : tensor<2x2xf32>
    %decayed = mpt.mul %w, %kept : tensor<2x2xf32>
    %next = mpt.sub %decayed, %move : tensor<2x2xf32>
    return %l, %next : tensor<f32>, tensor<2x2xf32>
  }
}

// -----

// A gradient with a number of its own, which an average takes up: the rate comes later.
// CHECK-LABEL: func.func @step
// CHECK: %[[MEAN:.*]] = mpt.mul %{{.*}}, %{{.*}}
// CHECK: train.gradient @w, %[[MEAN]]
module attributes {onnx.training = {loss = "loss", backward = "file", gradients = {}, next = {w_next = @w, m_next = @m}}} {
  train.state parameter @w : tensor<2x2xf32> = dense<0.5> : tensor<2x2xf32>
  train.state statistic @m : tensor<2x2xf32> = dense<0.0> : tensor<2x2xf32>
  func.func @forward(%x: tensor<2x2xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<2x2xf32> {mpt.name = "w_next"}, tensor<2x2xf32> {mpt.name = "m_next"}) {
    %w = train.read @w : tensor<2x2xf32>
    %m = train.read @m : tensor<2x2xf32>
    %y = "mpt.matmul"(%x, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %l = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<2x2xf32>) -> tensor<f32>
    %c = mpt.constant dense<1.0> : tensor<2x2xf32>
    %share = mpt.constant dense<0.25> : tensor<2x2xf32>
    %sum = "mpt.matmul"(%x, %c) {transpose_a = true} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %g = mpt.mul %sum, %share : tensor<2x2xf32>
    %keep = mpt.constant dense<0.9> : tensor<2x2xf32>
    %old = mpt.mul %m, %keep : tensor<2x2xf32>
    %new = mpt.add %old, %g : tensor<2x2xf32>
    %rate = mpt.constant dense<0.1> : tensor<2x2xf32>
    %move = mpt.mul %new, %rate : tensor<2x2xf32>
    %next = mpt.sub %w, %move : tensor<2x2xf32>
    return %l, %next, %new : tensor<f32>, tensor<2x2xf32>, tensor<2x2xf32>
  }
}

// -----

// An average of another parameter that the loss reads has no gradient of its own.
// CHECK-LABEL: func.func @step
// CHECK: train.gradient @w
// CHECK-NOT: train.gradient @t
// CHECK-DAG: train.write @t
module attributes {onnx.training = {loss = "loss", backward = "file", gradients = {}, next = {t_next = @t, w_next = @w}}} {
  train.state parameter @t : tensor<2x2xf32> = dense<0.5> : tensor<2x2xf32>
  train.state parameter @w : tensor<2x2xf32> = dense<0.5> : tensor<2x2xf32>
  func.func @forward(%x: tensor<2x2xf32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<2x2xf32> {mpt.name = "t_next"}, tensor<2x2xf32> {mpt.name = "w_next"}) {
    %w = train.read @w : tensor<2x2xf32>
    %t = train.read @t : tensor<2x2xf32>
    %y = "mpt.matmul"(%x, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %z = "mpt.matmul"(%x, %t) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %both = mpt.mul %y, %z : tensor<2x2xf32>
    %l = mpt.reduce sum %both {axes = array<i64: 0, 1>} : (tensor<2x2xf32>) -> tensor<f32>
    %c = mpt.constant dense<1.0> : tensor<2x2xf32>
    %dy = mpt.mul %c, %z : tensor<2x2xf32>
    %g = "mpt.matmul"(%x, %dy) {transpose_a = true} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %rate = mpt.constant dense<0.1> : tensor<2x2xf32>
    %move = mpt.mul %g, %rate : tensor<2x2xf32>
    %next = mpt.sub %w, %move : tensor<2x2xf32>
    %keep = mpt.constant dense<0.9> : tensor<2x2xf32>
    %rest = mpt.constant dense<0.1> : tensor<2x2xf32>
    %old = mpt.mul %t, %keep : tensor<2x2xf32>
    %part = mpt.mul %next, %rest : tensor<2x2xf32>
    %average = mpt.add %old, %part : tensor<2x2xf32>
    return %l, %average, %next : tensor<f32>, tensor<2x2xf32>, tensor<2x2xf32>
  }
}
