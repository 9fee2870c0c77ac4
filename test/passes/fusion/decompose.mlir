// RUN: mpt-opt %s --fusion-decompose --split-input-file | FileCheck %s
// RUN: mpt-opt %s --fusion-decompose --split-input-file --debug-only=fusion-decompose 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: fusion-decompose: {{.*}}: not split: expected at most 64 units

// CHECK-LABEL: func.func @long
// CHECK: %[[B:.*]] = mpt.reshape %{{.*}} : (tensor<65536x8xf32>) -> tensor<64x1024x8xf32>
// CHECK: %[[P:.*]] = mpt.reduce sum %[[B]] {axes = array<i64: 1>} : (tensor<64x1024x8xf32>) -> tensor<64x8xf32>
// CHECK: mpt.reduce sum %[[P]] {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
func.func @long(%x: tensor<65536x8xf32>) -> tensor<8xf32> {
  %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<65536x8xf32>) -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

// The batch is the block of an image's statistics; the mean divides once, at the end.
// CHECK-LABEL: func.func @image
// CHECK: %[[P:.*]] = mpt.reduce sum %{{.*}} {axes = array<i64: 2, 3>} : (tensor<32x16x56x56xf16>) -> tensor<32x16xf32>
// CHECK: %[[S:.*]] = mpt.reduce sum %[[P]] {axes = array<i64: 0>}
// CHECK: mpt.div %[[S]]
func.func @image(%x: tensor<32x16x56x56xf16>) -> tensor<16xf32> {
  %s = mpt.reduce mean %x {axes = array<i64: 0, 2, 3>} : (tensor<32x16x56x56xf16>) -> tensor<16xf32>
  return %s : tensor<16xf32>
}

// -----

// Narrow scattered sums run in FP32.
// CHECK-LABEL: func.func @scatter
// CHECK: %[[U:.*]] = mpt.cast %{{.*}} : tensor<7x4xf16> to tensor<7x4xf32>
// CHECK: %[[S:.*]] = mpt.scatter_add %{{.*}}, %[[U]] {{.*}} -> tensor<6x4xf32>
// CHECK: mpt.cast %[[S]] : tensor<6x4xf32> to tensor<6x4xf16>
func.func @scatter(%i: tensor<7xi64>, %u: tensor<7x4xf16>) -> tensor<6x4xf16> {
  %y = "mpt.scatter_add"(%i, %u) {axis = 0 : i64} : (tensor<7xi64>, tensor<7x4xf16>) -> tensor<6x4xf16>
  return %y : tensor<6x4xf16>
}

// -----

// Softmax has no loop form of its own.
// CHECK-LABEL: func.func @softmax
// CHECK-NOT: mpt.softmax
// CHECK: mpt.reduce max
// CHECK: mpt.exp
// CHECK: mpt.reduce sum
// CHECK: mpt.div
func.func @softmax(%x: tensor<16x128xf16>) -> tensor<16x128xf16> {
  %y = "mpt.softmax"(%x) {axis = 1 : i64} : (tensor<16x128xf16>) -> tensor<16x128xf16>
  return %y : tensor<16x128xf16>
}

// -----

// Cheap arithmetic before a long reduction is made on the blocks, so that it needs no memory of its own: here the sum reads
// the narrow gradient itself. Statistics of rows follow their rows.
// CHECK-LABEL: func.func @arithmetic
// CHECK: %[[G:.*]] = mpt.reshape %{{.*}} : (tensor<65536x8xf16>) -> tensor<64x1024x8xf16>
// CHECK: %[[W:.*]] = mpt.cast %[[G]]
// CHECK: %[[R:.*]] = mpt.reshape %{{.*}} : (tensor<65536xf32>) -> tensor<64x1024xf32>
// CHECK: %[[M:.*]] = mpt.broadcast %[[R]] {dims = array<i64: 0, 1>} : (tensor<64x1024xf32>) -> tensor<64x1024x8xf32>
// CHECK: %[[S:.*]] = mpt.mul %[[W]], %[[M]] : tensor<64x1024x8xf32>
// CHECK: mpt.reduce sum %[[S]]
func.func @arithmetic(%g: tensor<65536x8xf16>, %r: tensor<65536xf32>) -> tensor<8xf32> {
  %w = mpt.cast %g : tensor<65536x8xf16> to tensor<65536x8xf32>
  %m = mpt.broadcast %r {dims = array<i64: 0>} : (tensor<65536xf32>) -> tensor<65536x8xf32>
  %u = mpt.mul %w, %m : tensor<65536x8xf32>
  %s = mpt.reduce sum %u {axes = array<i64: 0>} : (tensor<65536x8xf32>) -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

// A value that is in memory anyway, for a GEMM, is read there.
// CHECK-LABEL: func.func @kept
// CHECK: %[[U:.*]] = mpt.mul
// CHECK: mpt.reshape %[[U]] : (tensor<65536x8xf32>) -> tensor<64x1024x8xf32>
func.func @kept(%g: tensor<65536x8xf32>, %r: tensor<65536x8xf32>, %b: tensor<8x4xf32>) -> (tensor<8xf32>, tensor<65536x4xf32>) {
  %u = mpt.mul %g, %r : tensor<65536x8xf32>
  %s = mpt.reduce sum %u {axes = array<i64: 0>} : (tensor<65536x8xf32>) -> tensor<8xf32>
  %y = mpt.matmul %u, %b : (tensor<65536x8xf32>, tensor<8x4xf32>) -> tensor<65536x4xf32>
  return %s, %y : tensor<8xf32>, tensor<65536x4xf32>
}
