// RUN: mpt-opt %s --library-fold-scales=result-scales | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[R:.*]] = library.gemm %arg0, %arg1 scale %arg2 : tensor<f32> : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf16>
// CHECK-NEXT: return %[[R]]
func.func @evaluate(%a: tensor<2x4xf16>, %b: tensor<4x8xf16>, %f: tensor<f32>) -> tensor<2x8xf16> {
  %y = library.gemm %a, %b : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf32>
  %r = mpt.fusion(%f, %y) : (tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<2x8xf32>):
    %l = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
    %m = mpt.mul %q, %l : tensor<2x8xf32>
    %h = mpt.cast %m : tensor<2x8xf32> to tensor<2x8xf16>
    mpt.yield %h : tensor<2x8xf16>
  }
  return %r : tensor<2x8xf16>
}
