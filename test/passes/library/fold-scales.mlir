// RUN: mpt-opt %s "--library-fold-scales=alpha-scales operand-scales result-scales" | FileCheck %s
// RUN: mpt-opt %s --library-fold-scales | FileCheck %s --check-prefix=NONE
// RUN: mpt-opt %s "--library-fold-scales=alpha-scales operand-scales result-scales" --debug-only=library-fold-scales 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// NONE-NOT: alpha =
// NONE-NOT: {{scales? %}}

// Constants before and behind a GEMM multiply into one alpha, through views.
// CHECK-LABEL: func.func @alpha
// CHECK-NOT: mpt.fusion
// CHECK: library.gemm %arg0, %{{.*}} {alpha = 2.500000e-01 : f64} :
// CHECK-NOT: mpt.fusion
// CHECK: return
func.func @alpha(%a: tensor<32x48xf16>, %b: tensor<64x48xf16>) -> tensor<32x64xf16> {
  %s = mpt.fusion(%b) : (tensor<64x48xf16>) -> tensor<64x48xf16> {
  ^bb0(%v: tensor<64x48xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<64x48xf16>
    %m = mpt.mul %v, %f : tensor<64x48xf16>
    mpt.yield %m : tensor<64x48xf16>
  }
  %t = mpt.transpose %s {permutation = array<i64: 1, 0>} : (tensor<64x48xf16>) -> tensor<48x64xf16>
  %y = library.gemm %a, %t : tensor<32x48xf16>, tensor<48x64xf16> -> tensor<32x64xf16>
  %r = mpt.fusion(%y) : (tensor<32x64xf16>) -> tensor<32x64xf16> {
  ^bb0(%v: tensor<32x64xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<32x64xf16>
    %m = mpt.mul %v, %f : tensor<32x64xf16>
    mpt.yield %m : tensor<32x64xf16>
  }
  return %r : tensor<32x64xf16>
}

// WHY: no GEMM beside it: expected GEMMs alone as readers of the scaled tensor, or one without epilogue as its source
// WHY: GEMM sums a matrix too: expected one without sums
// WHY: no GEMM beside it
// WHY: not a scale: expected a multiplication by a constant alone
// Not alpha, in this order: a factor of a tensor that is no GEMM's operand; of a sum's matrix; of an activation; no constant.
// CHECK-LABEL: func.func @no_alpha
// CHECK-NOT: alpha
// CHECK: return
func.func @no_alpha(%a: tensor<8x8xf16>, %b: tensor<8x8xf16>, %c: tensor<8x8xf16>, %d: tensor<8x8xf16>) -> (tensor<8x8xf16>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x8xf16>, tensor<8x8xf16>) {
  %half = mpt.fusion(%a) : (tensor<8x8xf16>) -> tensor<8x8xf16> {
  ^bb0(%v: tensor<8x8xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<8x8xf16>
    %m = mpt.mul %v, %f : tensor<8x8xf16>
    mpt.yield %m : tensor<8x8xf16>
  }
  %halved = mpt.fusion(%b) : (tensor<8x8xf16>) -> tensor<8x8xf16> {
  ^bb0(%v: tensor<8x8xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<8x8xf16>
    %m = mpt.mul %v, %f : tensor<8x8xf16>
    mpt.yield %m : tensor<8x8xf16>
  }
  %y, %sums = library.gemm %halved, %c {epilogue = #library.epilogue<sum = a>} : tensor<8x8xf16>, tensor<8x8xf16> -> tensor<8x8xf32> sums tensor<8xf32>
  %g = library.gemm %c, %d {epilogue = #library.epilogue<activation = gelu_tanh>} : tensor<8x8xf16>, tensor<8x8xf16> -> tensor<8x8xf16>
  %scaled = mpt.fusion(%g) : (tensor<8x8xf16>) -> tensor<8x8xf16> {
  ^bb0(%v: tensor<8x8xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<8x8xf16>
    %m = mpt.mul %v, %f : tensor<8x8xf16>
    mpt.yield %m : tensor<8x8xf16>
  }
  %square = mpt.fusion(%d) : (tensor<8x8xf16>) -> tensor<8x8xf16> {
  ^bb0(%v: tensor<8x8xf16>):
    %m = mpt.mul %v, %v : tensor<8x8xf16>
    mpt.yield %m : tensor<8x8xf16>
  }
  %z = library.gemm %square, %c : tensor<8x8xf16>, tensor<8x8xf16> -> tensor<8x8xf16>
  return %half, %y, %sums, %scaled, %z : tensor<8x8xf16>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x8xf16>, tensor<8x8xf16>
}

// WHY: not an 8-bit GEMM: expected unscaled 8-bit operands, not E5M2 both, with extents in sixteens
// WHY: no operand scales: expected one reader, which multiplies by two FP32 scalars and rounds
// The scales of 8-bit operands, and the rounding behind them; their product where extents are no multiples of 16; not
// where another reader wants the result without its scales.
// CHECK-LABEL: func.func @operands
// CHECK: library.gemm %arg0, %arg1 operand_scales %arg2, %arg3 : tensor<f32>, tensor<f32> {transpose_b = true} : {{.*}} -> tensor<32x64xbf16>
// CHECK: library.gemm %arg4, %arg5 scale %{{[0-9]+}} : tensor<f32> {transpose_b = true} : {{.*}} -> tensor<8x8xbf16>
// CHECK: library.gemm %arg0, %arg0 {transpose_b = true} : {{.*}} -> tensor<32x32xf32>
// CHECK: return
func.func @operands(%a: tensor<32x48xf8E4M3FN>, %b: tensor<64x48xf8E4M3FN>, %sa: tensor<f32>, %sb: tensor<f32>, %c: tensor<8x8xf8E4M3FN>, %d: tensor<8x8xf8E4M3FN>) -> (tensor<32x64xbf16>, tensor<8x8xbf16>, tensor<32x32xbf16>, tensor<32x32xf32>) {
  %y = library.gemm %a, %b {transpose_b = true} : tensor<32x48xf8E4M3FN>, tensor<64x48xf8E4M3FN> -> tensor<32x64xf32>
  %r0 = mpt.fusion(%sa, %sb, %y) : (tensor<f32>, tensor<f32>, tensor<32x64xf32>) -> tensor<32x64xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %p: tensor<32x64xf32>):
    %st = mpt.mul %s, %t : tensor<f32>
    %w = mpt.broadcast %st {dims = array<i64>} : (tensor<f32>) -> tensor<32x64xf32>
    %m = mpt.mul %p, %w : tensor<32x64xf32>
    %h = mpt.cast %m : tensor<32x64xf32> to tensor<32x64xbf16>
    mpt.yield %h : tensor<32x64xbf16>
  }
  %odd = library.gemm %c, %d {transpose_b = true} : tensor<8x8xf8E4M3FN>, tensor<8x8xf8E4M3FN> -> tensor<8x8xf32>
  %r1 = mpt.fusion(%sa, %sb, %odd) : (tensor<f32>, tensor<f32>, tensor<8x8xf32>) -> tensor<8x8xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %p: tensor<8x8xf32>):
    %st = mpt.mul %s, %t : tensor<f32>
    %w = mpt.broadcast %st {dims = array<i64>} : (tensor<f32>) -> tensor<8x8xf32>
    %m = mpt.mul %p, %w : tensor<8x8xf32>
    %h = mpt.cast %m : tensor<8x8xf32> to tensor<8x8xbf16>
    mpt.yield %h : tensor<8x8xbf16>
  }
  %two = library.gemm %a, %a {transpose_b = true} : tensor<32x48xf8E4M3FN>, tensor<32x48xf8E4M3FN> -> tensor<32x32xf32>
  %r2 = mpt.fusion(%sa, %sb, %two) : (tensor<f32>, tensor<f32>, tensor<32x32xf32>) -> tensor<32x32xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %p: tensor<32x32xf32>):
    %st = mpt.mul %s, %t : tensor<f32>
    %w = mpt.broadcast %st {dims = array<i64>} : (tensor<f32>) -> tensor<32x32xf32>
    %m = mpt.mul %p, %w : tensor<32x32xf32>
    %h = mpt.cast %m : tensor<32x32xf32> to tensor<32x32xbf16>
    mpt.yield %h : tensor<32x32xbf16>
  }
  return %r0, %r1, %r2, %two : tensor<32x64xbf16>, tensor<8x8xbf16>, tensor<32x32xbf16>, tensor<32x32xf32>
}
