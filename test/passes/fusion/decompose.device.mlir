// RUN: mpt-opt %s --fusion-decompose=device --split-input-file | FileCheck %s

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
