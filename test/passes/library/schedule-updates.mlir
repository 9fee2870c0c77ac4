// RUN: mpt-opt %s --library-schedule-updates | FileCheck %s
// RUN: mpt-opt %s --library-schedule-updates --library-verify-updates -o /dev/null
// RUN: mpt-opt %s --library-schedule-updates --debug-only=library-schedule-updates 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

train.state parameter @w : tensor<4x8xf32>

// An update waits for the readers of the old value, also of views of it, and for its gradient.
// CHECK-LABEL: func.func @waits
// CHECK: %[[T:.*]] = mpt.transpose
// CHECK: %[[Y:.*]] = mpt.matmul %{{.*}}, %[[T]]
// CHECK-NEXT: mpt.fusion
// CHECK: mpt.matmul %arg1, %arg2
func.func @waits(%x: tensor<2x8xf32>, %d: tensor<2x8xf32>, %a: tensor<8x8xf32>, %g: tensor<4x8xf32>) -> (tensor<2x4xf32>, tensor<2x8xf32>) {
  %w = train.read @w : tensor<4x8xf32>
  %t = mpt.transpose %w {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %y = mpt.matmul %x, %t : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %new = mpt.fusion(%g) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%q: tensor<4x8xf32>):
    %s = mpt.neg %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %y, %z : tensor<2x4xf32>, tensor<2x8xf32>
}

// Also of a fusion that only repeats it.
// CHECK-LABEL: func.func @waits_for_repeated
// CHECK: %[[Y:.*]] = mpt.matmul
// CHECK-NEXT: mpt.fusion
// CHECK: mpt.matmul %arg1, %arg2
func.func @waits_for_repeated(%x: tensor<2x2x4xf32>, %d: tensor<2x8xf32>, %a: tensor<8x8xf32>, %g: tensor<4x8xf32>) -> (tensor<2x2x8xf32>, tensor<2x8xf32>) {
  %w = train.read @w : tensor<4x8xf32>
  %b = mpt.fusion(%w) : (tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.broadcast %p {dims = array<i64: 1, 2>} : (tensor<4x8xf32>) -> tensor<2x4x8xf32>
    mpt.yield %s : tensor<2x4x8xf32>
  }
  %y = mpt.matmul %x, %b : (tensor<2x2x4xf32>, tensor<2x4x8xf32>) -> tensor<2x2x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %new = mpt.fusion(%g) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%q: tensor<4x8xf32>):
    %s = mpt.neg %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %y, %z : tensor<2x2x8xf32>, tensor<2x8xf32>
}

// Two parts of one part of a gradient: the views move in their order.
// CHECK-LABEL: func.func @parts_of_a_part
// CHECK: %[[B:.*]] = mpt.slice
// CHECK-NEXT: %[[P:.*]] = mpt.slice %[[B]] {sizes = array<i64: 4, 8>, starts = array<i64: 0, 0>
// CHECK-NEXT: %[[Q:.*]] = mpt.slice %[[B]] {sizes = array<i64: 4, 8>, starts = array<i64: 4, 0>
// CHECK-NEXT: mpt.fusion(%[[P]], %[[Q]])
// CHECK: mpt.matmul
func.func @parts_of_a_part(%d: tensor<2x8xf32>, %a: tensor<8x8xf32>, %e: tensor<12x8xf32>) -> tensor<2x8xf32> {
  %g = mpt.matmul %e, %a : (tensor<12x8xf32>, tensor<8x8xf32>) -> tensor<12x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %b = mpt.slice %g {sizes = array<i64: 8, 8>, starts = array<i64: 4, 0>, strides = array<i64: 1, 1>} : (tensor<12x8xf32>) -> tensor<8x8xf32>
  %p = mpt.slice %b {sizes = array<i64: 4, 8>, starts = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %q = mpt.slice %b {sizes = array<i64: 4, 8>, starts = array<i64: 4, 0>, strides = array<i64: 1, 1>} : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %new = mpt.fusion(%p, %q) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%r: tensor<4x8xf32>, %s: tensor<4x8xf32>):
    %t = mpt.add %r, %s : tensor<4x8xf32>
    mpt.yield %t : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %z : tensor<2x8xf32>
}

// Somebody else reads the new value: it stays.
// CHECK-LABEL: func.func @shared
// CHECK: mpt.matmul
// CHECK: mpt.fusion
// WHY: library-schedule-updates: {{.*}}: not an update: expected results that train.write alone reads, got others
func.func @shared(%d: tensor<2x8xf32>, %a: tensor<8x8xf32>, %g: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<4x8xf32>) {
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %new = mpt.fusion(%g) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%q: tensor<4x8xf32>):
    %s = mpt.neg %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %z, %new : tensor<2x8xf32>, tensor<4x8xf32>
}

// An update in another shape moves with the views that it reads.
// CHECK-LABEL: func.func @reshaped
// CHECK: %[[G:.*]] = mpt.neg
// CHECK-NEXT: %[[R:.*]] = mpt.reshape %[[G]]
// CHECK-NEXT: mpt.fusion(%[[R]])
// CHECK: mpt.matmul
func.func @reshaped(%d: tensor<2x8xf32>, %a: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> tensor<2x8xf32> {
  %g = mpt.neg %h : tensor<4x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %rows = mpt.reshape %g : (tensor<4x8xf32>) -> tensor<2x16xf32>
  %new = mpt.fusion(%rows) : (tensor<2x16xf32>) -> tensor<2x16xf32> {
  ^bb0(%q: tensor<2x16xf32>):
    %s = mpt.neg %q : tensor<2x16xf32>
    mpt.yield %s : tensor<2x16xf32>
  }
  %whole = mpt.reshape %new : (tensor<2x16xf32>) -> tensor<4x8xf32>
  train.write @w, %whole : tensor<4x8xf32>
  return %z : tensor<2x8xf32>
}

// The old value is read behind the update.
// CHECK-LABEL: func.func @late
// CHECK: mpt.fusion
// CHECK: mpt.matmul
// WHY: library-schedule-updates: {{.*}}: not earlier: expected the old value to be read before, got a later reader
func.func @late(%x: tensor<2x4xf32>, %g: tensor<4x8xf32>) -> tensor<2x8xf32> {
  %w = train.read @w : tensor<4x8xf32>
  %new = mpt.fusion(%g) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%q: tensor<4x8xf32>):
    %s = mpt.neg %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  %y = mpt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  train.write @w, %new : tensor<4x8xf32>
  return %y : tensor<2x8xf32>
}

// A small side result, here a gradient's largest magnitude, holds no update back; nor does a reader of the sum of an
// accumulator that the function empties.
// CHECK-LABEL: func.func @side_results
// CHECK: mpt.neg
// CHECK-NEXT: mpt.fusion
// CHECK: mpt.matmul
func.func @side_results(%d: tensor<2x8xf32>, %a: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<4x8xf32>, tensor<f32>) {
  %zero = mpt.constant dense<0.0> : tensor<4x8xf32>
  %w = train.read @w : tensor<4x8xf32>
  %g = mpt.neg %h : tensor<4x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %sum:2 = mpt.fusion(%w, %g) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<f32>) {
  ^bb0(%p: tensor<4x8xf32>, %q: tensor<4x8xf32>):
    %s = mpt.add %p, %q : tensor<4x8xf32>
    %m = mpt.reduce max %s {axes = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
    mpt.yield %s, %m : tensor<4x8xf32>, tensor<f32>
  }
  train.write @w, %zero : tensor<4x8xf32>
  return %z, %sum#0, %sum#1 : tensor<2x8xf32>, tensor<4x8xf32>, tensor<f32>
}

// The finite check of a gradient comes with the update, also where it lies behind another GEMM.
// CHECK-LABEL: func.func @checked
// CHECK: %[[G:.*]] = mpt.matmul %arg0, %arg1
// CHECK-NEXT: %[[R:.*]] = mpt.fusion(%[[G]])
// CHECK: %[[W:.*]] = train.read @w
// CHECK-NEXT: mpt.fusion(%[[W]], %[[G]], %[[R]])
// CHECK: mpt.matmul %arg2, %arg3
func.func @checked(%x: tensor<4x2xf32>, %y: tensor<2x8xf32>, %d: tensor<2x8xf32>, %a: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %g = mpt.matmul %x, %y : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %ok = mpt.fusion(%g) : (tensor<4x8xf32>) -> tensor<i1> {
  ^bb0(%q: tensor<4x8xf32>):
    %m = mpt.reduce max %q {axes = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
    %f = mpt.is_finite %m : tensor<f32>
    mpt.yield %f : tensor<i1>
  }
  %w = train.read @w : tensor<4x8xf32>
  %new = mpt.fusion(%w, %g, %ok) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<i1>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>, %q: tensor<4x8xf32>, %f: tensor<i1>):
    %s = mpt.sub %p, %q : tensor<4x8xf32>
    %b = mpt.broadcast %f {dims = array<i64>} : (tensor<i1>) -> tensor<4x8xi1>
    %k = mpt.select %b, %s, %p : tensor<4x8xi1>, tensor<4x8xf32>
    mpt.yield %k : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %z : tensor<2x8xf32>
}
