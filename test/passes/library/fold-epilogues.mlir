// RUN: mpt-opt %s --library-fold-epilogues | FileCheck %s
// RUN: mpt-opt %s --library-fold-epilogues=bias-through-reshape | FileCheck %s --check-prefix=RESHAPE
// RUN: mpt-opt %s --library-fold-epilogues --debug-only=library-fold-epilogues 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

train.state parameter @b : tensor<8xbf16>

// 16-bit types are rounded between the steps, as the ops round. The rest of the fusion stays; the read of a
// parameter moves before the GEMM.
// CHECK-LABEL: func.func @narrow
// CHECK: %[[B:.*]] = train.read @b
// CHECK-NEXT: %[[Y:.*]] = library.gemm %arg0, %arg1 bias %[[B]] : tensor<8xbf16> {epilogue = #library.epilogue<round = true>} :
// CHECK-NEXT: mpt.fusion(%[[Y]]) : (tensor<2x8xbf16>) -> tensor<2x8xbf16>
// CHECK-NOT: mpt.add
// CHECK: mpt.tanh
// CHECK: return
func.func @narrow(%x: tensor<2x4xbf16>, %w: tensor<4x8xbf16>) -> tensor<2x8xbf16> {
  %y = library.gemm %x, %w : tensor<2x4xbf16>, tensor<4x8xbf16> -> tensor<2x8xbf16>
  %b = train.read @b : tensor<8xbf16>
  %r = mpt.fusion(%b, %y) : (tensor<8xbf16>, tensor<2x8xbf16>) -> tensor<2x8xbf16> {
  ^bb0(%q: tensor<8xbf16>, %p: tensor<2x8xbf16>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xbf16>) -> tensor<2x8xbf16>
    %s = mpt.add %l, %p : tensor<2x8xbf16>
    %t = mpt.tanh %s : tensor<2x8xbf16>
    mpt.yield %t : tensor<2x8xbf16>
  }
  return %r : tensor<2x8xbf16>
}

// WHY: fold-epilogues.mlir:{{.*}}: no kernel behind it: expected one fusion as the only reader
// A reshape that keeps the columns lies between the two only where the option allows it.
// CHECK-LABEL: func.func @reshaped
// CHECK-NOT: bias
// CHECK: return
// RESHAPE-LABEL: func.func @reshaped
// RESHAPE: %[[Y:.*]] = library.gemm %arg0, %arg1 bias %arg2 : tensor<8xf32> : tensor<6x4xf32>, tensor<4x8xf32> -> tensor<6x8xf32>
// RESHAPE-NEXT: %[[S:.*]] = mpt.reshape %[[Y]]
// RESHAPE-NEXT: return %[[S]]
func.func @reshaped(%x: tensor<6x4xf32>, %w: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<2x3x8xf32> {
  %y = library.gemm %x, %w : tensor<6x4xf32>, tensor<4x8xf32> -> tensor<6x8xf32>
  %v = mpt.reshape %y : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
  %r = mpt.fusion(%v, %b) : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32> {
  ^bb0(%p: tensor<2x3x8xf32>, %q: tensor<8xf32>):
    %l = mpt.broadcast %q {dims = array<i64: 2>} : (tensor<8xf32>) -> tensor<2x3x8xf32>
    %s = mpt.add %p, %l : tensor<2x3x8xf32>
    mpt.yield %s : tensor<2x3x8xf32>
  }
  return %r : tensor<2x3x8xf32>
}

// WHY: no bias behind it: expected the fusion to add a vector along the columns
// WHY: no bias behind it
// WHY: no kernel behind it
// WHY: not a type with epilogues: expected a result of FP32 or 16 bits
// Left alone, in this order: a vector along the rows; a result that a kernel reads before the bias, or that two read; FP64.
// CHECK-LABEL: func.func @refused
// CHECK-NOT: bias
// CHECK: return
func.func @refused(%x: tensor<8x4xf32>, %w: tensor<4x8xf32>, %b: tensor<8xf32>, %u: tensor<8x4xf64>, %v: tensor<4x8xf64>, %c: tensor<8xf64>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf64>) {
  %rows = library.gemm %x, %w : tensor<8x4xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
  %r0 = mpt.fusion(%rows, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32> {
  ^bb0(%p: tensor<8x8xf32>, %q: tensor<8xf32>):
    %l = mpt.broadcast %q {dims = array<i64: 0>} : (tensor<8xf32>) -> tensor<8x8xf32>
    %s = mpt.add %p, %l : tensor<8x8xf32>
    mpt.yield %s : tensor<8x8xf32>
  }
  %read = library.gemm %x, %w : tensor<8x4xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
  %r1 = mpt.fusion(%read, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32> {
  ^bb0(%p: tensor<8x8xf32>, %q: tensor<8xf32>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<8x8xf32>
    %s = mpt.add %p, %l : tensor<8x8xf32>
    %m = mpt.mul %s, %p : tensor<8x8xf32>
    mpt.yield %m : tensor<8x8xf32>
  }
  %two = library.gemm %x, %w : tensor<8x4xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
  %r2 = mpt.fusion(%two, %b) : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32> {
  ^bb0(%p: tensor<8x8xf32>, %q: tensor<8xf32>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<8x8xf32>
    %s = mpt.add %p, %l : tensor<8x8xf32>
    mpt.yield %s : tensor<8x8xf32>
  }
  %wide = library.gemm %u, %v : tensor<8x4xf64>, tensor<4x8xf64> -> tensor<8x8xf64>
  %r3 = mpt.fusion(%wide, %c) : (tensor<8x8xf64>, tensor<8xf64>) -> tensor<8x8xf64> {
  ^bb0(%p: tensor<8x8xf64>, %q: tensor<8xf64>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf64>) -> tensor<8x8xf64>
    %s = mpt.add %p, %l : tensor<8x8xf64>
    mpt.yield %s : tensor<8x8xf64>
  }
  return %r0, %r1, %two, %r2, %r3 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf64>
}

// WHY: bias is not there yet: expected one that is made before the GEMM
// WHY: GEMM has an epilogue: expected none, and no scale of its result
// WHY: GEMM has an epilogue
// Nor a bias that is made after the GEMM, nor one behind an epilogue or a scale.
// CHECK-LABEL: func.func @later
// CHECK-NOT: bias
// CHECK: return
func.func @later(%x: tensor<2x4xf16>, %w: tensor<4x8xf16>, %b: tensor<1x8xf16>, %v: tensor<8xf16>, %f: tensor<f32>) -> (tensor<2x8xf16>, tensor<2x8xf16>, tensor<2x8xf16>) {
  %y = library.gemm %x, %w : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf16>
  %vector = mpt.reshape %b : (tensor<1x8xf16>) -> tensor<8xf16>
  %r0 = mpt.fusion(%y, %vector) : (tensor<2x8xf16>, tensor<8xf16>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<2x8xf16>, %q: tensor<8xf16>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf16>) -> tensor<2x8xf16>
    %s = mpt.add %p, %l : tensor<2x8xf16>
    mpt.yield %s : tensor<2x8xf16>
  }
  %g = library.gemm %x, %w {epilogue = #library.epilogue<activation = gelu_tanh>} : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf16>
  %r1 = mpt.fusion(%g, %v) : (tensor<2x8xf16>, tensor<8xf16>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<2x8xf16>, %q: tensor<8xf16>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf16>) -> tensor<2x8xf16>
    %s = mpt.add %p, %l : tensor<2x8xf16>
    mpt.yield %s : tensor<2x8xf16>
  }
  %h = library.gemm %x, %w scale %f : tensor<f32> : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf16>
  %r2 = mpt.fusion(%h, %v) : (tensor<2x8xf16>, tensor<8xf16>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<2x8xf16>, %q: tensor<8xf16>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf16>) -> tensor<2x8xf16>
    %s = mpt.add %p, %l : tensor<2x8xf16>
    mpt.yield %s : tensor<2x8xf16>
  }
  return %r0, %r1, %r2 : tensor<2x8xf16>, tensor<2x8xf16>, tensor<2x8xf16>
}
