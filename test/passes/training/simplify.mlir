// RUN: mpt-opt %s --training-simplify | FileCheck %s

// CHECK-LABEL: func.func @neutral(%arg0: tensor<3xf32>)
// CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0, %arg0, %arg0
func.func @neutral(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %one = mpt.constant dense<1.0> : tensor<3xf32>
  %zero = mpt.constant dense<0.0> : tensor<3xf32>
  %minus = mpt.constant dense<-0.0> : tensor<3xf32>
  %a = mpt.mul %one, %x : tensor<3xf32>
  %b = mpt.div %x, %one : tensor<3xf32>
  %c = mpt.add %x, %minus : tensor<3xf32>
  %d = mpt.sub %x, %zero : tensor<3xf32>
  %n = mpt.neg %x : tensor<3xf32>
  %e = mpt.neg %n : tensor<3xf32>
  %f = mpt.pow %x, %one : tensor<3xf32>
  return %a, %b, %c, %d, %e, %f : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// -0 + 0 is 0, x * 0 may be NaN, integers have one zero.
// CHECK-LABEL: func.func @not_neutral
// CHECK-DAG: mpt.add %arg0
// CHECK-DAG: mpt.mul %arg0
// CHECK: return %{{.*}}, %{{.*}}, %arg1
func.func @not_neutral(%x: tensor<3xf32>, %i: tensor<3xi64>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xi64>) {
  %zero = mpt.constant dense<0.0> : tensor<3xf32>
  %none = mpt.constant dense<0> : tensor<3xi64>
  %a = mpt.add %x, %zero : tensor<3xf32>
  %b = mpt.mul %x, %zero : tensor<3xf32>
  %c = mpt.add %i, %none : tensor<3xi64>
  return %a, %b, %c : tensor<3xf32>, tensor<3xf32>, tensor<3xi64>
}

// CHECK-LABEL: func.func @shapes(%arg0: tensor<1x3xf32>)
// CHECK-DAG: mpt.reshape %arg0 : (tensor<1x3xf32>) -> tensor<3xf32>
// CHECK-DAG: mpt.broadcast %arg0 {dims = array<i64: 1, 3>} : (tensor<1x3xf32>) -> tensor<2x4x5x3xf32>
// CHECK-DAG: mpt.reshape %arg0 : (tensor<1x3xf32>) -> tensor<3x1xf32>
// CHECK-DAG: mpt.mul %arg0, %arg0
// CHECK-NOT: mpt.reduce
// CHECK-NOT: mpt.transpose
// CHECK: return
func.func @shapes(%x: tensor<1x3xf32>) -> (tensor<3xf32>, tensor<2x4x5x3xf32>, tensor<3x1xf32>, tensor<1x3xf32>) {
  %a = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<1x3xf32>) -> tensor<3xf32>
  %b = mpt.broadcast %x {dims = array<i64: 0, 2>} : (tensor<1x3xf32>) -> tensor<4x5x3xf32>
  %c = mpt.broadcast %b {dims = array<i64: 1, 2, 3>} : (tensor<4x5x3xf32>) -> tensor<2x4x5x3xf32>
  %d = mpt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<1x3xf32>) -> tensor<3x1xf32>
  %two = mpt.constant dense<2.0> : tensor<1x3xf32>
  %e = mpt.pow %x, %two : tensor<1x3xf32>
  return %a, %c, %d, %e : tensor<3xf32>, tensor<2x4x5x3xf32>, tensor<3x1xf32>, tensor<1x3xf32>
}

// A batch in which the second operand differs stays a batch; its transposes are taken over all the same.
// CHECK-LABEL: func.func @batched
// CHECK-NEXT: mpt.matmul %arg0, %arg1 {transpose_a = true, transpose_b = true}
func.func @batched(%a: tensor<2x3x5xf32>, %b: tensor<2x4x3xf32>) -> tensor<2x5x4xf32> {
  %s = mpt.transpose %a {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x5xf32>) -> tensor<2x5x3xf32>
  %t = mpt.transpose %b {permutation = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
  %y = mpt.matmul %s, %t : (tensor<2x5x3xf32>, tensor<2x3x4xf32>) -> tensor<2x5x4xf32>
  return %y : tensor<2x5x4xf32>
}

// A gradient that nothing uses yet stays; the op that nothing needs goes.
// CHECK-LABEL: func.func @step
// CHECK-NOT: mpt.exp
// CHECK: train.gradient @w
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>
func.func @step(%l: tensor<f32>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %w = train.read @w : tensor<3xf32>
  %dead = mpt.exp %w : tensor<3xf32>
  %r = train.gradient @w, %w : tensor<3xf32>
  return %l : tensor<f32>
}
