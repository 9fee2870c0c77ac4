// RUN: mpt-opt %s --split-input-file --fusion-rematerialize=code-all --fusion-code-activations=all | FileCheck %s
// RUN: mpt-opt %s --split-input-file --fusion-code-activations | FileCheck %s --check-prefix=NONE
// NONE-NOT: f8E4M3FN

// Scores go into an exponential, so the softmax's result waits as codes; its sums stay.
// CHECK-LABEL: func.func @softmax
// CHECK: mpt.coded = array<i64: 1,
// CHECK: %[[E:.*]] = mpt.exp
// CHECK: %[[P:.*]] = mpt.div %[[E]]
// CHECK: mpt.cast %{{.*}} : tensor<64x128xf32> to tensor<64x128xf8E4M3FN>
// CHECK: mpt.matmul %[[P]], %arg2
// CHECK-NOT: mpt.exp
// CHECK: mpt.cast %{{.*}} {mpt.recomputed} : tensor<64x128xf8E4M3FN> to tensor<64x128xf32>
func.func @softmax(%x: tensor<64x32xf32>, %w: tensor<32x128xf32>, %v: tensor<128x8xf32>)
    -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<128x8xf32>, tensor<64x128xf32>) {
  %s = mpt.matmul %x, %w : (tensor<64x32xf32>, tensor<32x128xf32>) -> tensor<64x128xf32>
  %e = mpt.exp %s : tensor<64x128xf32>
  %sum = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<64x128xf32>) -> tensor<64xf32>
  %b = mpt.broadcast %sum {dims = array<i64: 0>} : (tensor<64xf32>) -> tensor<64x128xf32>
  %p = mpt.div %e, %b : tensor<64x128xf32>
  %z = mpt.matmul %p, %v : (tensor<64x128xf32>, tensor<128x8xf32>) -> tensor<64x8xf32>
  %loss = mpt.reduce sum %z {axes = array<i64: 0, 1>} : (tensor<64x8xf32>) -> tensor<f32>
  %dp = mpt.matmul %z, %v {train.part = #train<part backward>, transpose_b = true} : (tensor<64x8xf32>, tensor<128x8xf32>) -> tensor<64x128xf32>
  %d = mpt.mul %dp, %p : tensor<64x128xf32>
  %g = mpt.matmul %p, %z {train.part = #train<part backward>, transpose_a = true} : (tensor<64x128xf32>, tensor<64x8xf32>) -> tensor<128x8xf32>
  return %loss, %g, %d : tensor<f32>, tensor<128x8xf32>, tensor<64x128xf32>
}

// -----

// A view of the coded value is shown anew. Values of parameters alone, of few elements, and inputs stay as they are.
// CHECK-LABEL: func.func @views
// CHECK: mpt.coded = array<i64: 1, 24064>
// CHECK: mpt.reduce max {{.*}} {axes = array<i64: 2>} : (tensor<2x64x64xf32>) -> tensor<2x64xf32>
// CHECK: mpt.matmul %{{.*}}train.part
// CHECK: %[[R:.*]] = mpt.mul %{{.*}} {mpt.recomputed} : tensor<2x64x64xf32>
// CHECK: %[[V:.*]] = mpt.reshape %[[R]]
// CHECK: mpt.matmul %[[V]], %{{.*}}train.part
train.state parameter @w : tensor<64x64xf32>
func.func @views(%x: tensor<128x64xf32>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>, tensor<64x64xf32>) {
  %w = train.read @w : tensor<64x64xf32>
  %n = mpt.neg %w : tensor<64x64xf32>
  %y = mpt.matmul %x, %n : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %r = mpt.reshape %y : (tensor<128x64xf32>) -> tensor<2x64x64xf32>
  %a = mpt.tanh %r : tensor<2x64x64xf32>
  %f = mpt.reshape %a : (tensor<2x64x64xf32>) -> tensor<128x64xf32>
  %z = mpt.matmul %f, %n : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %loss = mpt.reduce sum %z {axes = array<i64: 0, 1>} : (tensor<128x64xf32>) -> tensor<f32>
  %gx = mpt.matmul %x, %z {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %ga = mpt.matmul %f, %gx {train.part = #train<part backward>} : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %gw = mpt.matmul %ga, %ga {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  return %loss, %gx, %gw : tensor<f32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// Neither what the loss compares nor its gradient, which is made before the first GEMM of the backward pass.
// CHECK-LABEL: func.func @loss
// CHECK-NOT: f8E4M3FN
func.func @loss(%x: tensor<128x64xf32>, %w: tensor<64x64xf32>, %t: tensor<128x64xf32>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>, tensor<128x64xf32>) {
  %y = mpt.matmul %x, %w : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %e = mpt.sub %y, %t : tensor<128x64xf32>
  %q = mpt.mul %e, %e : tensor<128x64xf32>
  %loss = mpt.reduce mean %q {axes = array<i64: 0, 1>} : (tensor<128x64xf32>) -> tensor<f32>
  %two = mpt.constant dense<2.0> : tensor<128x64xf32>
  %d = mpt.mul %e, %two : tensor<128x64xf32>
  %gw = mpt.matmul %x, %d {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %gx = mpt.matmul %d, %w {train.part = #train<part backward>, transpose_b = true} : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  return %loss, %gw, %gx : tensor<f32>, tensor<64x64xf32>, tensor<128x64xf32>
}
