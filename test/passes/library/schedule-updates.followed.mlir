// RUN: mpt-opt %s --library-schedule-updates | FileCheck %s
// RUN: mpt-opt %s --library-schedule-updates --library-verify-updates -o /dev/null

train.state parameter @w : tensor<4x8xf32>
train.state parameter @v : tensor<8xf32>

// A reader of @w moves up with the update of @v that needs its few bytes; the update of @w, which was behind it, follows.
// CHECK-LABEL: func.func @followed
// CHECK: mpt.matmul %arg0, %arg1
// CHECK: %[[FEW:.*]] = mpt.fusion
// CHECK-SAME: -> tensor<8xf32>
// CHECK: mpt.fusion
// CHECK-SAME: -> tensor<4x8xf32>
// CHECK: mpt.fusion(%{{.*}}, %[[FEW]])
// CHECK: mpt.matmul %arg2, %arg3
func.func @followed(%x: tensor<4x2xf32>, %y: tensor<2x8xf32>, %d: tensor<2x8xf32>, %a: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %g = mpt.matmul %x, %y : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %w = train.read @w : tensor<4x8xf32>
  %few = mpt.fusion(%w, %g) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8xf32> {
  ^bb0(%p: tensor<4x8xf32>, %q: tensor<4x8xf32>):
    %s = mpt.mul %p, %q : tensor<4x8xf32>
    %m = mpt.reduce sum %s {axes = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
    mpt.yield %m : tensor<8xf32>
  }
  %new = mpt.fusion(%w, %g) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>, %q: tensor<4x8xf32>):
    %s = mpt.sub %p, %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  %v = train.read @v : tensor<8xf32>
  %next = mpt.fusion(%v, %few) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%p: tensor<8xf32>, %q: tensor<8xf32>):
    %s = mpt.sub %p, %q : tensor<8xf32>
    mpt.yield %s : tensor<8xf32>
  }
  train.write @v, %next : tensor<8xf32>
  return %z : tensor<2x8xf32>
}
