// RUN: mpt-opt %s "--library-count-traffic=shared-bytes=232448 sector-bytes=32" | FileCheck %s

// Two kernels could be one: the value between them counts once, where somebody else reads it.
// CHECK: func.func @chain({{.*}}mpt.traffic = array<i64: 384, 384>
func.func @chain(%a: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %x = mpt.fusion(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.exp %p : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  %y = mpt.fusion(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.neg %p : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  return %x, %y : tensor<4x8xf32>, tensor<4x8xf32>
}

// A sum over more than a multiprocessor holds ends a kernel: its operands are read again.
// CHECK: func.func @grid({{.*}}mpt.traffic = array<i64: 1048580, 1048588>
func.func @grid(%a: tensor<262144xf32>) -> tensor<f32> {
  %s = mpt.fusion(%a) : (tensor<262144xf32>) -> tensor<f32> {
  ^bb0(%p: tensor<262144xf32>):
    %r = mpt.reduce sum %p {axes = array<i64: 0>} : (tensor<262144xf32>) -> tensor<f32>
    mpt.yield %r : tensor<f32>
  }
  %y = mpt.fusion(%s) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%p: tensor<f32>):
    %r = mpt.exp %p : tensor<f32>
    mpt.yield %r : tensor<f32>
  }
  return %y : tensor<f32>
}

// Views move nothing.
// CHECK: func.func @view({{.*}}mpt.traffic = array<i64: 0, 0>
func.func @view(%a: tensor<4x8xf32>) -> tensor<32xf32> {
  %r = mpt.reshape %a : (tensor<4x8xf32>) -> tensor<32xf32>
  return %r : tensor<32xf32>
}

// A function without a body is left alone.
// CHECK: func.func private @elsewhere()
// CHECK-NOT: mpt.traffic
func.func private @elsewhere()
