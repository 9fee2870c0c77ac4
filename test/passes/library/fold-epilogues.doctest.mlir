// RUN: mpt-opt %s --library-fold-epilogues | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[Y:.*]] = library.gemm %arg0, %arg1 bias %arg2 : tensor<8xf32> {epilogue = #library.epilogue<activation = relu>} : tensor<2x4xf32>, tensor<4x8xf32> -> tensor<2x8xf32>
// CHECK-NEXT: return %[[Y]]
func.func @evaluate(%x: tensor<2x4xf32>, %w: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<2x8xf32> {
  %y = library.gemm %x, %w : tensor<2x4xf32>, tensor<4x8xf32> -> tensor<2x8xf32>
  %r = mpt.fusion(%y, %b) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32> {
  ^bb0(%p: tensor<2x8xf32>, %q: tensor<8xf32>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<2x8xf32>
    %s = mpt.add %p, %l : tensor<2x8xf32>
    %a = mpt.relu %s : tensor<2x8xf32>
    mpt.yield %a : tensor<2x8xf32>
  }
  return %r : tensor<2x8xf32>
}
