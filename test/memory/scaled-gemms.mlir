// RUN: mpt-opt %s --library-convert-calls "--library-fold-scales=alpha-scales operand-scales" --library-choose-layouts --memory-assign-destinations "--memory-bufferize=target=cuda flags=--arch=sm_90" "--lowering-emit-kernels=target=cuda flags=--arch=sm_90" | FileCheck %s
// RUN: mpt-opt %s --fusion-widen-operands --fusion-form --library-convert-calls --library-fold-scales=alpha-scales --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s --check-prefix=WIDE
// RUN: not mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda 2>&1 | FileCheck %s --check-prefix=REFUSED

// REFUSED: expected 8-bit operands that the library multiplies, got others: run fusion-widen-operands

// The scales of 8-bit operands go to the GEMM, which stores the scaled and rounded result.
// CHECK-LABEL: func.func @scaled
// CHECK: rt.gemm %arg0, %{{.*}} operand_scales %arg2, %arg3 : memref<f32>, memref<f32> into %{{.*}} : {{.*}}, memref<32x64xbf16>
// CHECK-NOT: rt.launch
// CHECK: return
// Where GEMMs are not of 8 bits, a kernel applies them.
// WIDE-LABEL: func.func @scaled
// WIDE: rt.gemm %{{.*}}, %{{.*}} into %{{.*}} : memref<32x48xf16>
// WIDE: rt.launch
func.func @scaled(%a: tensor<32x48xf8E4M3FN>, %b: tensor<64x48xf8E4M3FN>, %sa: tensor<f32>, %sb: tensor<f32>) -> tensor<32x64xbf16> {
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<32x48xf8E4M3FN>, tensor<64x48xf8E4M3FN>) -> tensor<32x64xf32>
  %r = mpt.fusion(%sa, %sb, %y) : (tensor<f32>, tensor<f32>, tensor<32x64xf32>) -> tensor<32x64xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %p: tensor<32x64xf32>):
    %st = mpt.mul %s, %t : tensor<f32>
    %w = mpt.broadcast %st {dims = array<i64>} : (tensor<f32>) -> tensor<32x64xf32>
    %m = mpt.mul %p, %w : tensor<32x64xf32>
    %c = mpt.cast %m : tensor<32x64xf32> to tensor<32x64xbf16>
    mpt.yield %c : tensor<32x64xbf16>
  }
  return %r : tensor<32x64xbf16>
}

// Another reader wants the GEMM without its scales.
// CHECK-LABEL: func.func @read_twice
// CHECK: rt.gemm
// CHECK-NOT: operand_scales
// CHECK: return
func.func @read_twice(%a: tensor<32x48xf8E4M3FN>, %b: tensor<64x48xf8E4M3FN>, %sa: tensor<f32>, %sb: tensor<f32>) -> (tensor<32x64xbf16>, tensor<32x64xf32>) {
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<32x48xf8E4M3FN>, tensor<64x48xf8E4M3FN>) -> tensor<32x64xf32>
  %r = mpt.fusion(%sa, %sb, %y) : (tensor<f32>, tensor<f32>, tensor<32x64xf32>) -> tensor<32x64xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %p: tensor<32x64xf32>):
    %st = mpt.mul %s, %t : tensor<f32>
    %w = mpt.broadcast %st {dims = array<i64>} : (tensor<f32>) -> tensor<32x64xf32>
    %m = mpt.mul %p, %w : tensor<32x64xf32>
    %c = mpt.cast %m : tensor<32x64xf32> to tensor<32x64xbf16>
    mpt.yield %c : tensor<32x64xbf16>
  }
  return %r, %y : tensor<32x64xbf16>, tensor<32x64xf32>
}

// Where the columns of the result lie one after the other, the transposes are multiplied, and the scales trade places.
// CHECK-LABEL: func.func @transposed
// CHECK: rt.gemm %{{.*}}, %{{.*}} operand_scales %arg3, %arg2
func.func @transposed(%a: tensor<32x48xf8E4M3FN>, %b: tensor<64x48xf8E4M3FN>, %sa: tensor<f32>, %sb: tensor<f32>) -> tensor<64x32xbf16> {
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<32x48xf8E4M3FN>, tensor<64x48xf8E4M3FN>) -> tensor<32x64xf32>
  %r = mpt.fusion(%sa, %sb, %y) : (tensor<f32>, tensor<f32>, tensor<32x64xf32>) -> tensor<32x64xbf16> {
  ^bb0(%s: tensor<f32>, %t: tensor<f32>, %p: tensor<32x64xf32>):
    %st = mpt.mul %s, %t : tensor<f32>
    %w = mpt.broadcast %st {dims = array<i64>} : (tensor<f32>) -> tensor<32x64xf32>
    %m = mpt.mul %p, %w : tensor<32x64xf32>
    %c = mpt.cast %m : tensor<32x64xf32> to tensor<32x64xbf16>
    mpt.yield %c : tensor<32x64xbf16>
  }
  %t = mpt.transpose %r {permutation = array<i64: 1, 0>} : (tensor<32x64xbf16>) -> tensor<64x32xbf16>
  return %t : tensor<64x32xbf16>
}

// Constant factors of an operand or of the result become the GEMM's alpha, of views of them, too.
// CHECK-LABEL: func.func @alpha
// CHECK: rt.gemm {{.*}}alpha = 2.500000e-01
// CHECK-NOT: rt.launch
// CHECK: return
func.func @alpha(%a: tensor<32x48xf16>, %b: tensor<64x48xf16>) -> tensor<32x64xf16> {
  %s = mpt.fusion(%b) : (tensor<64x48xf16>) -> tensor<64x48xf16> {
  ^bb0(%v: tensor<64x48xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<64x48xf16>
    %m = mpt.mul %v, %f : tensor<64x48xf16>
    mpt.yield %m : tensor<64x48xf16>
  }
  %t = mpt.transpose %s {permutation = array<i64: 1, 0>} : (tensor<64x48xf16>) -> tensor<48x64xf16>
  %y = mpt.matmul %a, %t : (tensor<32x48xf16>, tensor<48x64xf16>) -> tensor<32x64xf16>
  %r = mpt.fusion(%y) : (tensor<32x64xf16>) -> tensor<32x64xf16> {
  ^bb0(%v: tensor<32x64xf16>):
    %f = mpt.constant dense<5.000000e-01> : tensor<32x64xf16>
    %m = mpt.mul %v, %f : tensor<32x64xf16>
    mpt.yield %m : tensor<32x64xf16>
  }
  return %r : tensor<32x64xf16>
}
