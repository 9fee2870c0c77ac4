// RUN: mpt-opt %s --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s

// The place of a row's value is written in two ways. The row is read again for the second, behind the walk that stores its
// elements: these must not replace their input.
// CHECK-LABEL: func.func private @kernel1(
// CHECK-NOT: mpt.in_place
// CHECK-SAME: mpt.kernel
func.func @rows(%x: tensor<2x2x4x4x2xf32>) -> tensor<f32> {
  %a = mpt.fusion(%x) {library.layouts = [#library.layout<[0, 1, 4, 2, 3]>]} : (tensor<2x2x4x4x2xf32>) -> tensor<2x2x4x4x2xf32> {
  ^bb0(%b: tensor<2x2x4x4x2xf32>):
    %c = mpt.exp %b : tensor<2x2x4x4x2xf32>
    mpt.yield %c : tensor<2x2x4x4x2xf32>
  }
  %y:3 = mpt.fusion(%a) {library.layouts = [#library.layout<[0, 1, 4, 2, 3]>, #library.layout<[0, 1, 2, 3]>, #library.layout<[0, 1, 2]>]} : (tensor<2x2x4x4x2xf32>) -> (tensor<2x2x4x4x2xf32>, tensor<2x2x4x4xf32>, tensor<4x4x4xf32>) {
  ^bb0(%b: tensor<2x2x4x4x2xf32>):
    %d = mpt.neg %b : tensor<2x2x4x4x2xf32>
    %s = mpt.reduce sum %d {axes = array<i64: 4>} : (tensor<2x2x4x4x2xf32>) -> tensor<2x2x4x4xf32>
    %e = mpt.exp %s : tensor<2x2x4x4xf32>
    %f = mpt.reshape %e : (tensor<2x2x4x4xf32>) -> tensor<4x4x4xf32>
    mpt.yield %d, %e, %f : tensor<2x2x4x4x2xf32>, tensor<2x2x4x4xf32>, tensor<4x4x4xf32>
  }
  %z = mpt.fusion(%y#0, %y#1, %y#2) : (tensor<2x2x4x4x2xf32>, tensor<2x2x4x4xf32>, tensor<4x4x4xf32>) -> tensor<f32> {
  ^bb0(%b: tensor<2x2x4x4x2xf32>, %c: tensor<2x2x4x4xf32>, %g: tensor<4x4x4xf32>):
    %d = mpt.broadcast %c {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x4x4xf32>) -> tensor<2x2x4x4x2xf32>
    %h = mpt.reshape %g : (tensor<4x4x4xf32>) -> tensor<2x2x4x4xf32>
    %i = mpt.broadcast %h {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x4x4xf32>) -> tensor<2x2x4x4x2xf32>
    %f = mpt.mul %b, %d : tensor<2x2x4x4x2xf32>
    %j = mpt.mul %f, %i : tensor<2x2x4x4x2xf32>
    %s = mpt.reduce sum %j {axes = array<i64: 0, 1, 2, 3, 4>} : (tensor<2x2x4x4x2xf32>) -> tensor<f32>
    mpt.yield %s : tensor<f32>
  }
  return %z : tensor<f32>
}
