// RUN: mpt-opt %s --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s

// The rows' sums are gathered in the walk that stores their elements, also where two axes tell rows apart and a row's elements
// lie apart. One walk reads the row, so that its elements may replace their input.
// CHECK-LABEL: func.func private @kernel1(
// CHECK-SAME: mpt.in_place = array<i64: 0, 1>
// CHECK: iter_args
// CHECK-NOT: iter_args
// CHECK-LABEL: func.func private @kernel2(
func.func @rows(%x: tensor<2x2x4x4x2xf32>) -> tensor<f32> {
  %a = mpt.fusion(%x) {library.layouts = [#library.layout<[0, 1, 4, 2, 3]>]} : (tensor<2x2x4x4x2xf32>) -> tensor<2x2x4x4x2xf32> {
  ^bb0(%b: tensor<2x2x4x4x2xf32>):
    %c = mpt.exp %b : tensor<2x2x4x4x2xf32>
    mpt.yield %c : tensor<2x2x4x4x2xf32>
  }
  %y:2 = mpt.fusion(%a) {library.layouts = [#library.layout<[0, 1, 4, 2, 3]>, #library.layout<[0, 1, 2, 3]>]} : (tensor<2x2x4x4x2xf32>) -> (tensor<2x2x4x4x2xf32>, tensor<2x2x4x4xf32>) {
  ^bb0(%b: tensor<2x2x4x4x2xf32>):
    %d = mpt.neg %b : tensor<2x2x4x4x2xf32>
    %s = mpt.reduce sum %d {axes = array<i64: 4>} : (tensor<2x2x4x4x2xf32>) -> tensor<2x2x4x4xf32>
    %e = mpt.exp %s : tensor<2x2x4x4xf32>
    mpt.yield %d, %e : tensor<2x2x4x4x2xf32>, tensor<2x2x4x4xf32>
  }
  %z = mpt.fusion(%y#0, %y#1) : (tensor<2x2x4x4x2xf32>, tensor<2x2x4x4xf32>) -> tensor<f32> {
  ^bb0(%b: tensor<2x2x4x4x2xf32>, %c: tensor<2x2x4x4xf32>):
    %d = mpt.broadcast %c {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x4x4xf32>) -> tensor<2x2x4x4x2xf32>
    %f = mpt.mul %b, %d : tensor<2x2x4x4x2xf32>
    %s = mpt.reduce sum %f {axes = array<i64: 0, 1, 2, 3, 4>} : (tensor<2x2x4x4x2xf32>) -> tensor<f32>
    mpt.yield %s : tensor<f32>
  }
  return %z : tensor<f32>
}
