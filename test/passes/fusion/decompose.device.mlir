// RUN: mpt-opt %s '--fusion-decompose=shared-sums coarse-gelu' --split-input-file | FileCheck %s

// Kernels of a GPU share long sums out themselves.
// CHECK-LABEL: func.func @long
// CHECK-COUNT-1: mpt.reduce
// CHECK-NOT: mpt.reduce
func.func @long(%x: tensor<65536x8xf32>) -> tensor<8xf32> {
  %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<65536x8xf32>) -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

// A variance over columns and the mean under it wait for the same pass.
// CHECK-LABEL: func.func @moments
// CHECK: mpt.reduce mean %{{.*}} {axes = array<i64: 0>} : (tensor<4096x8xf64>) -> tensor<8xf64>
// CHECK: %[[Q:.*]] = mpt.mul %[[X:.*]], %[[X]] : tensor<4096x8xf64>
// CHECK: mpt.reduce mean %[[Q]] {axes = array<i64: 0>} : (tensor<4096x8xf64>) -> tensor<8xf64>
// CHECK: mpt.max
// CHECK-NOT: mpt.reduce
func.func @moments(%x: tensor<4096x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %m = mpt.reduce mean %x {axes = array<i64: 0>} : (tensor<4096x8xf32>) -> tensor<8xf32>
  %b = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<4096x8xf32>
  %c = mpt.sub %x, %b : tensor<4096x8xf32>
  %q = mpt.mul %c, %c : tensor<4096x8xf32>
  %v = mpt.reduce mean %q {axes = array<i64: 0>} : (tensor<4096x8xf32>) -> tensor<8xf32>
  return %m, %v : tensor<8xf32>, tensor<8xf32>
}

// The largest element of a kernel's result is found along its rows first, and before a reshape that would end the kernel;
// the quantized tensor is reshaped afterwards.
// CHECK-LABEL: func.func @quantized
// CHECK: %[[Y:.*]] = mpt.exp
// CHECK-DAG: %[[A:.*]] = mpt.abs %[[Y]] : tensor<16x64x256xf32>
// CHECK-DAG: %[[ROWS:.*]] = mpt.reduce max %[[A]] {axes = array<i64: 2>}
// CHECK-DAG: mpt.reduce max %[[ROWS]] {axes = array<i64: 0, 1>}
// CHECK-DAG: %[[M:.*]] = mpt.mul %[[Y]], {{.*}} : tensor<16x64x256xf32>
// CHECK-DAG: %[[Q:.*]] = mpt.cast %[[M]]
// CHECK-DAG: %[[R:.*]] = mpt.reshape %[[Q]] : {{.*}} -> tensor<1024x256xf8E4M3FN>
// CHECK: mpt.matmul %[[R]]
func.func @quantized(%x: tensor<16x64x256xf32>, %w: tensor<256x32xf8E4M3FN>, %scale: tensor<f32>) -> (tensor<1024x32xf32>, tensor<f32>) {
  %y = mpt.exp %x : tensor<16x64x256xf32>
  %r = mpt.reshape %y : (tensor<16x64x256xf32>) -> tensor<1024x256xf32>
  %a = mpt.abs %r : tensor<1024x256xf32>
  %m = mpt.reduce max %a {axes = array<i64: 0, 1>} : (tensor<1024x256xf32>) -> tensor<f32>
  %b = mpt.broadcast %scale {dims = array<i64>} : (tensor<f32>) -> tensor<1024x256xf32>
  %s = mpt.mul %r, %b : tensor<1024x256xf32>
  %q = mpt.cast %s {overflow = #mpt<overflow saturate>} : tensor<1024x256xf32> to tensor<1024x256xf8E4M3FN>
  %p = mpt.matmul %q, %w : (tensor<1024x256xf8E4M3FN>, tensor<256x32xf8E4M3FN>) -> tensor<1024x32xf32>
  return %p, %m : tensor<1024x32xf32>, tensor<f32>
}

// A kernel that goes on in the new shape keeps its arithmetic there, and a call's result has no kernel to join.
// CHECK-LABEL: func.func @continued
// CHECK: %[[R:.*]] = mpt.reshape
// CHECK: mpt.mul %[[R]]
// CHECK: mpt.reduce max {{.*}} {axes = array<i64: 0, 1>}
func.func @continued(%x: tensor<16x64x256xf32>, %z: tensor<1024x256xf32>, %scale: tensor<f32>) -> (tensor<1024x256xf32>, tensor<f32>) {
  %y = mpt.exp %x : tensor<16x64x256xf32>
  %r = mpt.reshape %y : (tensor<16x64x256xf32>) -> tensor<1024x256xf32>
  %b = mpt.broadcast %scale {dims = array<i64>} : (tensor<f32>) -> tensor<1024x256xf32>
  %s = mpt.mul %r, %b : tensor<1024x256xf32>
  %t = mpt.add %s, %z : tensor<1024x256xf32>
  %m = mpt.reduce max %z {axes = array<i64: 0, 1>} : (tensor<1024x256xf32>) -> tensor<f32>
  return %t, %m : tensor<1024x256xf32>, tensor<f32>
}

// Beside a bias gradient the largest element is found down the columns: one pass makes both, and the quantized copy.
// CHECK-LABEL: func.func @bias_gradient
// CHECK-DAG: %[[C:.*]] = mpt.reduce max %{{.*}} {axes = array<i64: 0, 1>} : (tensor<16x64x256xf32>) -> tensor<256xf32>
// CHECK-DAG: mpt.reduce max %[[C]] {axes = array<i64: 0>}
// CHECK-DAG: mpt.reduce sum %{{.*}} {axes = array<i64: 0, 1>}
func.func @bias_gradient(%g: tensor<16x64x256xf32>) -> (tensor<256xf32>, tensor<f32>) {
  %s = mpt.reduce sum %g {axes = array<i64: 0, 1>} : (tensor<16x64x256xf32>) -> tensor<256xf32>
  %r = mpt.reshape %g : (tensor<16x64x256xf32>) -> tensor<1024x256xf32>
  %a = mpt.abs %r : tensor<1024x256xf32>
  %m = mpt.reduce max %a {axes = array<i64: 0, 1>} : (tensor<1024x256xf32>) -> tensor<f32>
  return %s, %m : tensor<256xf32>, tensor<f32>
}

// The scale of a batch norm is multiplied with the sums: the sums for its input equal the sums for scale and shift.
// CHECK-LABEL: func.func @factors
// CHECK-SAME: %[[DY:.*]]: tensor<8x16x9x9xf32>, %[[N:.*]]: tensor<8x16x9x9xf32>, %[[SCALE:.*]]: tensor<16xf32>
// CHECK: %[[P:.*]] = mpt.mul %[[DY]], %[[N]]
// CHECK: %[[S:.*]] = mpt.reduce sum %[[P]] {axes = array<i64: 0, 2, 3>}
// CHECK: %[[T:.*]] = mpt.mul %[[S]], %[[SCALE]] : tensor<16xf32>
// CHECK: mpt.constant dense<0.00154320989> : tensor<16xf32>
// CHECK: mpt.mul %[[T]]
// CHECK: %[[U:.*]] = mpt.reduce sum %[[DY]] {axes = array<i64: 0, 2, 3>}
// CHECK: mpt.mul %[[U]], %[[SCALE]] : tensor<16xf32>
// CHECK-NOT: mpt.reduce
func.func @factors(%dy: tensor<8x16x9x9xf32>, %n: tensor<8x16x9x9xf32>, %scale: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %b = mpt.broadcast %scale {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<8x16x9x9xf32>
  %d = mpt.mul %dy, %b : tensor<8x16x9x9xf32>
  %p = mpt.mul %d, %n : tensor<8x16x9x9xf32>
  %m = mpt.reduce mean %p {axes = array<i64: 0, 2, 3>} : (tensor<8x16x9x9xf32>) -> tensor<16xf32>
  %s = mpt.reduce sum %d {axes = array<i64: 0, 2, 3>} : (tensor<8x16x9x9xf32>) -> tensor<16xf32>
  return %m, %s : tensor<16xf32>, tensor<16xf32>
}

// Factors that vary among the terms stay, and so do single numbers, which may be scales of the loss, and narrow terms.
// CHECK-LABEL: func.func @no_factors
// CHECK: mpt.mul
// CHECK-NEXT: mpt.reduce mean
// CHECK: mpt.mul
// CHECK-NEXT: mpt.reduce sum
// CHECK: mpt.mul
// CHECK-NEXT: mpt.reduce sum
func.func @no_factors(%x: tensor<64x256xf32>, %h: tensor<64x256xf16>, %scale: tensor<256xf32>, %one: tensor<f32>, %row: tensor<64xf16>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf16>) {
  %b = mpt.broadcast %scale {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<64x256xf32>
  %d = mpt.mul %x, %b : tensor<64x256xf32>
  %m = mpt.reduce mean %d {axes = array<i64: 1>} : (tensor<64x256xf32>) -> tensor<64xf32>
  %c = mpt.broadcast %one {dims = array<i64>} : (tensor<f32>) -> tensor<64x256xf32>
  %e = mpt.mul %x, %c : tensor<64x256xf32>
  %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<64x256xf32>) -> tensor<64xf32>
  %r = mpt.broadcast %row {dims = array<i64: 0>} : (tensor<64xf16>) -> tensor<64x256xf16>
  %f = mpt.mul %h, %r : tensor<64x256xf16>
  %t = mpt.reduce sum %f {axes = array<i64: 1>} : (tensor<64x256xf16>) -> tensor<64xf16>
  return %m, %s, %t : tensor<64xf32>, tensor<64xf32>, tensor<64xf16>
}

// -----

// Of this GELU no more than 8 bits and their largest magnitude are left.
// CHECK-LABEL: func.func @eight_bit_gelu
// CHECK: mpt.gelu
func.func @eight_bit_gelu(%x: tensor<64x32xbf16>, %s: tensor<64x32xbf16>) -> (tensor<64x32xf8E4M3FN>, tensor<bf16>) {
  %g = mpt.gelu %x : tensor<64x32xbf16>
  %a = mpt.abs %g : tensor<64x32xbf16>
  %m = mpt.reduce max %a {axes = array<i64: 0, 1>} : (tensor<64x32xbf16>) -> tensor<bf16>
  %p = mpt.mul %g, %s : tensor<64x32xbf16>
  %y = mpt.cast %p : tensor<64x32xbf16> to tensor<64x32xf8E4M3FN>
  return %y, %m : tensor<64x32xf8E4M3FN>, tensor<bf16>
}

// -----

// Here its 16 bits are.
// CHECK-LABEL: func.func @sixteen_bit_gelu
// CHECK-NOT: mpt.gelu
// CHECK: mpt.erf
func.func @sixteen_bit_gelu(%x: tensor<64x32xbf16>) -> (tensor<64x32xf8E4M3FN>, tensor<64x32xbf16>) {
  %g = mpt.gelu %x : tensor<64x32xbf16>
  %y = mpt.cast %g : tensor<64x32xbf16> to tensor<64x32xf8E4M3FN>
  return %y, %g : tensor<64x32xf8E4M3FN>, tensor<64x32xbf16>
}
