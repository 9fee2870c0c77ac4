// RUN: mpt-opt %s --library-chain-gemms=column-unit=8 | FileCheck %s
// RUN: mpt-opt %s --library-chain-gemms=column-unit=8 --fusion-decompose=shared-sums "--fusion-form=shared-sums column-outputs kept-rows bundles memory-bound" --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s --check-prefix=CALLS
// RUN: mpt-opt %s --library-chain-gemms=column-unit=8 --debug-only=library-chain-gemms 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// The GEMM keeps the sum before the activation, which its gradient reads; the bias gradient comes with the GEMM that
// makes the weights' gradient, in FP32 for FP32's sake.
// CHECK-LABEL: func.func @step
// CHECK: %[[G:.*]], %[[KEPT:.*]] = library.gemm %arg0, %arg1 bias %arg2 : tensor<64xbf16> {epilogue = #library.epilogue<activation = gelu_tanh, keep = true>} : tensor<128x16xbf16>, tensor<16x64xbf16> -> tensor<128x64xbf16> kept tensor<128x64xbf16>
// CHECK: %[[GS:.*]] = mpt.reshape %[[G]]
// CHECK: %[[DG:.*]] = library.gemm %arg3, %arg4 aux %[[KEPT]] : tensor<128x64xbf16> {epilogue = #library.epilogue<activation = gelu_tanh_gradient>, transpose_b = true} : {{.*}} -> tensor<128x64xbf16>
// CHECK: %[[DU:.*]] = mpt.reshape %[[DG]]
// CHECK: %[[DUS:.*]] = mpt.reshape %[[DU]]
// CHECK: %[[DW:.*]], %[[DB:.*]] = library.gemm %arg0, %[[DUS]] {epilogue = #library.epilogue<sum = b>, numerics = #mpt.numerics<in = bf16, acc = f32, out = f32>, transpose_a = true} : {{.*}} -> tensor<16x64xf32> sums tensor<64xf32>
// CHECK-NOT: mpt.gelu
// CHECK-NOT: mpt.reduce
// CHECK: return %{{.*}}, %[[DB]], %[[DW]]
// CALLS-LABEL: func.func @step
// CALLS: rt.alloc : memref<128x64xbf16>
// CALLS: %[[KEPT:.*]] = rt.alloc : memref<128x64xbf16>
// CALLS: rt.gemm %arg0, %arg1 bias %arg2 : memref<64xbf16> aux %[[KEPT]] : memref<128x64xbf16> into %{{.*}} {epilogue = #library.epilogue<activation = gelu_tanh, keep = true>}
// CALLS: rt.gemm %arg3, %{{.*}} aux %[[KEPT]] : memref<128x64xbf16> into %[[DU:.*]] {epilogue = #library.epilogue<activation = gelu_tanh_gradient>}
// CALLS: rt.gemm %{{.*}}, %{{.*}} sums %arg8 : memref<64xf32> into %arg9 {epilogue = #library.epilogue<sum = b>}
// CALLS-NOT: rt.launch
// CALLS: return
func.func @step(%x: tensor<128x16xbf16>, %w: tensor<16x64xbf16>, %bias: tensor<64xbf16>, %dy: tensor<128x8xbf16>, %down: tensor<64x8xbf16>, %v: tensor<64x8xbf16>) -> (tensor<128x8xbf16>, tensor<128x16xbf16>, tensor<64xf32>, tensor<16x64xf32>) {
  %p = mpt.matmul %x, %w : (tensor<128x16xbf16>, tensor<16x64xbf16>) -> tensor<128x64xbf16>
  %ps = mpt.reshape %p : (tensor<128x64xbf16>) -> tensor<4x32x64xbf16>
  %b = mpt.broadcast %bias {dims = array<i64: 2>} : (tensor<64xbf16>) -> tensor<4x32x64xbf16>
  %u = mpt.add %ps, %b : tensor<4x32x64xbf16>
  %g = mpt.gelu %u {form = #mpt<gelu_form tanh>} : tensor<4x32x64xbf16>
  %gs = mpt.reshape %g : (tensor<4x32x64xbf16>) -> tensor<128x64xbf16>
  %y = mpt.matmul %gs, %v : (tensor<128x64xbf16>, tensor<64x8xbf16>) -> tensor<128x8xbf16>
  %dg = mpt.matmul %dy, %down {transpose_b = true} : (tensor<128x8xbf16>, tensor<64x8xbf16>) -> tensor<128x64xbf16>
  %dgs = mpt.reshape %dg : (tensor<128x64xbf16>) -> tensor<4x32x64xbf16>
  %du = mpt.gelu_backward %dgs, %u {form = #mpt<gelu_form tanh>} : tensor<4x32x64xbf16>
  %db = mpt.reduce sum %du {axes = array<i64: 0, 1>} : (tensor<4x32x64xbf16>) -> tensor<64xf32>
  %dus = mpt.reshape %du : (tensor<4x32x64xbf16>) -> tensor<128x64xbf16>
  %dx = mpt.matmul %dus, %w {transpose_b = true} : (tensor<128x64xbf16>, tensor<16x64xbf16>) -> tensor<128x16xbf16>
  %dw = mpt.matmul %x, %dus {numerics = #mpt.numerics<in = bf16, acc = f32, out = bf16>, transpose_a = true} : (tensor<128x16xbf16>, tensor<128x64xbf16>) -> tensor<16x64xbf16>
  %dw32 = mpt.cast %dw : tensor<16x64xbf16> to tensor<16x64xf32>
  return %y, %dx, %db, %dw32 : tensor<128x8xbf16>, tensor<128x16xbf16>, tensor<64xf32>, tensor<16x64xf32>
}

// Without a backward pass nothing is kept. A GEMM with an FP32 result may leave FP32 sums of its first operand.
// CHECK-LABEL: func.func @forward
// CHECK: %{{.*}} = library.gemm %arg0, %arg1 {epilogue = #library.epilogue<activation = gelu_tanh>} : {{.*}} -> tensor<32x64xf16>
// CHECK: library.gemm %arg2, %arg3 {epilogue = #library.epilogue<sum = a>, transpose_a = true} : tensor<128x64xf16>, tensor<128x16xf16> -> tensor<64x16xf32> sums tensor<64xf32>
// CALLS-LABEL: func.func @forward
// CALLS: rt.gemm {{.*}} {epilogue = #library.epilogue<activation = gelu_tanh>}
// CALLS: rt.gemm {{.*}} {epilogue = #library.epilogue<sum = a>}
func.func @forward(%x: tensor<32x16xf16>, %w: tensor<16x64xf16>, %dy: tensor<128x64xf16>, %a: tensor<128x16xf16>) -> (tensor<32x64xf16>, tensor<64xf32>, tensor<64x16xf32>) {
  %p = mpt.matmul %x, %w : (tensor<32x16xf16>, tensor<16x64xf16>) -> tensor<32x64xf16>
  %g = mpt.gelu %p {form = #mpt<gelu_form tanh>} : tensor<32x64xf16>
  %db = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<128x64xf16>) -> tensor<64xf32>
  %dw = mpt.matmul %dy, %a {transpose_a = true} : (tensor<128x64xf16>, tensor<128x16xf16>) -> tensor<64x16xf32>
  return %g, %db, %dw : tensor<32x64xf16>, tensor<64xf32>, tensor<64x16xf32>
}

// WHY: not in cuBLASLt: expected the tanh form of GELU, got erf
// WHY: activation is read by a kernel: expected readers that are library calls
// WHY: no GEMM before it: expected a multiplication of two matrices and a result of one 16-bit type
// WHY: columns of the GEMM do not fit: expected the same multiple of 8 before and after the reshape, got {{.*}}x60xbf16
// Not taken: erf; an activation that a kernel reads; FP32; columns that are not in eights.
// CHECK-LABEL: func.func @activations
// CHECK-NOT: library.gemm
// CHECK: return
func.func @activations(%x: tensor<32x16xbf16>, %w: tensor<16x64xbf16>, %y: tensor<32x16xf32>, %v: tensor<16x64xf32>, %odd: tensor<16x60xbf16>) -> (tensor<32x64xbf16>, tensor<32x64xbf16>, tensor<32x64xf32>, tensor<32x60xbf16>) {
  %p = mpt.matmul %x, %w : (tensor<32x16xbf16>, tensor<16x64xbf16>) -> tensor<32x64xbf16>
  %erf = mpt.gelu %p : tensor<32x64xbf16>
  %q = mpt.matmul %x, %w : (tensor<32x16xbf16>, tensor<16x64xbf16>) -> tensor<32x64xbf16>
  %t = mpt.gelu %q {form = #mpt<gelu_form tanh>} : tensor<32x64xbf16>
  %read = mpt.mul %t, %erf : tensor<32x64xbf16>
  %r = mpt.matmul %y, %v : (tensor<32x16xf32>, tensor<16x64xf32>) -> tensor<32x64xf32>
  %wide = mpt.gelu %r {form = #mpt<gelu_form tanh>} : tensor<32x64xf32>
  %s = mpt.matmul %x, %odd : (tensor<32x16xbf16>, tensor<16x60xbf16>) -> tensor<32x60xbf16>
  %o = mpt.gelu %s {form = #mpt<gelu_form tanh>} : tensor<32x60xbf16>
  return %erf, %read, %wide, %o : tensor<32x64xbf16>, tensor<32x64xbf16>, tensor<32x64xf32>, tensor<32x60xbf16>
}

// WHY: matrix is made by a kernel: expected a library call before the sum
// WHY: matrix is read by a kernel: expected readers that are library calls
// WHY: not a bias gradient: expected sums down the columns of a 16-bit matrix
// WHY: result cannot have the type of the sums: expected conversions to 'f32' alone as readers, of a result small beside the matrix
// WHY: result cannot have the type of the sums
// Not taken: sums of a matrix that a kernel makes, or reads as well; of FP32; beside a GEMM whose result is wanted in 16 bits, or that
// is as large as the matrix.
// CHECK-LABEL: func.func @sums
// CHECK-NOT: library.gemm
// CHECK: return
func.func @sums(%dy: tensor<128x64xbf16>, %x: tensor<128x16xbf16>, %e: tensor<128x64xf32>, %z: tensor<128x16xf32>, %d: tensor<128x64xbf16>, %f: tensor<128x64xbf16>, %wide: tensor<128x64xbf16>) -> (tensor<64xf32>, tensor<64x16xf32>, tensor<64xf32>, tensor<64x16xf32>, tensor<128x64xbf16>, tensor<64xf32>, tensor<64x16xf32>, tensor<64xf32>, tensor<64x16xbf16>, tensor<64xf32>, tensor<64x64xf32>) {
  %made = mpt.neg %dy : tensor<128x64xbf16>
  %b0 = mpt.reduce sum %made {axes = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xf32>
  %w0 = mpt.matmul %made, %x {transpose_a = true} : (tensor<128x64xbf16>, tensor<128x16xbf16>) -> tensor<64x16xf32>
  %b1 = mpt.reduce sum %d {axes = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xf32>
  %w1 = mpt.matmul %d, %x {transpose_a = true} : (tensor<128x64xbf16>, tensor<128x16xbf16>) -> tensor<64x16xf32>
  %read = mpt.neg %d : tensor<128x64xbf16>
  %b2 = mpt.reduce sum %e {axes = array<i64: 0>} : (tensor<128x64xf32>) -> tensor<64xf32>
  %w2 = mpt.matmul %e, %z {transpose_a = true} : (tensor<128x64xf32>, tensor<128x16xf32>) -> tensor<64x16xf32>
  %b3 = mpt.reduce sum %f {axes = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xf32>
  %w3 = mpt.matmul %f, %x {transpose_a = true} : (tensor<128x64xbf16>, tensor<128x16xbf16>) -> tensor<64x16xbf16>
  %b4 = mpt.reduce sum %wide {axes = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xf32>
  %w4 = mpt.matmul %wide, %dy {transpose_a = true} : (tensor<128x64xbf16>, tensor<128x64xbf16>) -> tensor<64x64xbf16>
  %w5 = mpt.cast %w4 : tensor<64x64xbf16> to tensor<64x64xf32>
  return %b0, %w0, %b1, %w1, %read, %b2, %w2, %b3, %w3, %b4, %w5 : tensor<64xf32>, tensor<64x16xf32>, tensor<64xf32>, tensor<64x16xf32>, tensor<128x64xbf16>, tensor<64xf32>, tensor<64x16xf32>, tensor<64xf32>, tensor<64x16xbf16>, tensor<64xf32>, tensor<64x64xf32>
}
