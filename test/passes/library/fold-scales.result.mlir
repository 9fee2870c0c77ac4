// RUN: mpt-opt %s --library-fold-scales=result-scales | FileCheck %s
// RUN: mpt-opt %s --library-fold-scales=result-scales --debug-only=library-fold-scales 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// A scale of the result is found through views, and the GEMM waits for it.
// CHECK-LABEL: func.func @through_views
// CHECK: %[[F:.*]] = mpt.reshape %arg2
// CHECK-NEXT: %[[Y:.*]] = library.gemm %arg0, %arg1 scale %[[F]] : tensor<f32> : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf16>
// CHECK-NEXT: %[[V:.*]] = mpt.reshape %[[Y]] : (tensor<2x8xf16>) -> tensor<16xf16>
// CHECK-NEXT: return %[[V]]
func.func @through_views(%x: tensor<2x4xf16>, %w: tensor<4x8xf16>, %one: tensor<1xf32>) -> tensor<16xf16> {
  %y = library.gemm %x, %w : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf32>
  %v = mpt.reshape %y : (tensor<2x8xf32>) -> tensor<16xf32>
  %f = mpt.reshape %one : (tensor<1xf32>) -> tensor<f32>
  %r = mpt.fusion(%f, %v) : (tensor<f32>, tensor<16xf32>) -> tensor<16xf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<16xf32>):
    %b = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<16xf32>
    %m = mpt.mul %q, %b : tensor<16xf32>
    %h = mpt.cast %m : tensor<16xf32> to tensor<16xf16>
    mpt.yield %h : tensor<16xf16>
  }
  return %r : tensor<16xf16>
}

// Both scales of 8-bit operands are multiplied first, whether the result is rounded or not.
// CHECK-LABEL: func.func @bytes
// CHECK: %[[P:.*]] = mpt.fusion(%arg2, %arg3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
// CHECK: %[[M:.*]] = mpt.mul %{{.*}}, %{{.*}} : tensor<f32>
// CHECK-NEXT: mpt.yield %[[M]]
// CHECK: %[[Y:.*]] = library.gemm %arg0, %arg1 scale %[[P]] : tensor<f32> : tensor<2x4xf8E5M2>, tensor<4x8xf8E4M3FN> -> tensor<2x8xbf16>
// CHECK: %[[Q:.*]] = mpt.fusion(%arg2, %arg3)
// CHECK: %[[Z:.*]] = library.gemm %arg0, %arg0 scale %[[Q]] : tensor<f32> {transpose_b = true} : {{.*}} -> tensor<2x2xf32>
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @bytes(%x: tensor<2x4xf8E5M2>, %w: tensor<4x8xf8E4M3FN>, %sx: tensor<f32>, %sw: tensor<f32>) -> (tensor<2x8xbf16>, tensor<2x2xf32>) {
  %y = library.gemm %x, %w : tensor<2x4xf8E5M2>, tensor<4x8xf8E4M3FN> -> tensor<2x8xf32>
  %r = mpt.fusion(%sx, %sw, %y) : (tensor<f32>, tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %q: tensor<2x8xf32>):
    %p = mpt.mul %s, %t : tensor<f32>
    %l = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
    %m = mpt.mul %q, %l : tensor<2x8xf32>
    %h = mpt.cast %m : tensor<2x8xf32> to tensor<2x8xbf16>
    mpt.yield %h : tensor<2x8xbf16>
  }
  %z = library.gemm %x, %x {transpose_b = true} : tensor<2x4xf8E5M2>, tensor<2x4xf8E5M2> -> tensor<2x2xf32>
  %g = mpt.fusion(%sx, %sw, %z) : (tensor<f32>, tensor<f32>, tensor<2x2xf32>) -> tensor<2x2xf32> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %q: tensor<2x2xf32>):
    %p = mpt.mul %s, %t : tensor<f32>
    %l = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x2xf32>
    %m = mpt.mul %q, %l : tensor<2x2xf32>
    mpt.yield %m : tensor<2x2xf32>
  }
  return %r, %g : tensor<2x8xbf16>, tensor<2x2xf32>
}

// WHY: not a GEMM to scale: expected f16 or 8-bit operands, an FP32 result, no epilogue or scale
// WHY: no result scale: expected one reader, which multiplies by an FP32 scalar and rounds to f16, or by those of both 8-bit operands
// WHY: no result scale
// Not taken: BF16 operands; a result that something else reads; one that is rounded to another type.
// CHECK-LABEL: func.func @refused
// CHECK-NOT: scale
// CHECK: return
func.func @refused(%a: tensor<2x4xbf16>, %b: tensor<4x8xbf16>, %x: tensor<2x4xf16>, %w: tensor<4x8xf16>, %f: tensor<f32>) -> (tensor<2x8xf16>, tensor<2x8xf16>, tensor<2x8xf32>, tensor<2x8xbf16>) {
  %y0 = library.gemm %a, %b : tensor<2x4xbf16>, tensor<4x8xbf16> -> tensor<2x8xf32>
  %r0 = mpt.fusion(%f, %y0) : (tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<2x8xf32>):
    %l = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
    %m = mpt.mul %q, %l : tensor<2x8xf32>
    %h = mpt.cast %m : tensor<2x8xf32> to tensor<2x8xf16>
    mpt.yield %h : tensor<2x8xf16>
  }
  %y1 = library.gemm %x, %w : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf32>
  %r1 = mpt.fusion(%f, %y1) : (tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<2x8xf32>):
    %l = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
    %m = mpt.mul %q, %l : tensor<2x8xf32>
    %h = mpt.cast %m : tensor<2x8xf32> to tensor<2x8xf16>
    mpt.yield %h : tensor<2x8xf16>
  }
  %y2 = library.gemm %x, %w : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf32>
  %r2 = mpt.fusion(%f, %y2) : (tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xbf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<2x8xf32>):
    %l = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
    %m = mpt.mul %q, %l : tensor<2x8xf32>
    %h = mpt.cast %m : tensor<2x8xf32> to tensor<2x8xbf16>
    mpt.yield %h : tensor<2x8xbf16>
  }
  return %r0, %r1, %y1, %r2 : tensor<2x8xf16>, tensor<2x8xf16>, tensor<2x8xf32>, tensor<2x8xbf16>
}
