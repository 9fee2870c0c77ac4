// RUN: mpt-opt --import-recognize-composites %s | FileCheck %s

// CHECK-LABEL: @erf_gelu
// CHECK: mpt.gelu
// CHECK-NOT: mpt.erf
// CHECK: return
func.func @erf_gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = mpt.constant dense<1.41421354> : tensor<4xf32>
  %one = mpt.constant dense<1.0> : tensor<4xf32>
  %half = mpt.constant dense<0.5> : tensor<4xf32>
  %0 = mpt.div %x, %root : tensor<4xf32>
  %1 = mpt.erf %0 : tensor<4xf32>
  %2 = mpt.add %1, %one : tensor<4xf32>
  %3 = mpt.mul %x, %2 : tensor<4xf32>
  %4 = mpt.mul %3, %half : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// The gate of another value is no GELU.
// CHECK-LABEL: @other_gate
// CHECK: mpt.erf
// CHECK-NOT: mpt.gelu
// CHECK: return
func.func @other_gate(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %root = mpt.constant dense<1.41421354> : tensor<4xf32>
  %one = mpt.constant dense<1.0> : tensor<4xf32>
  %half = mpt.constant dense<0.5> : tensor<4xf32>
  %0 = mpt.div %y, %root : tensor<4xf32>
  %1 = mpt.erf %0 : tensor<4xf32>
  %2 = mpt.add %1, %one : tensor<4xf32>
  %3 = mpt.mul %x, %2 : tensor<4xf32>
  %4 = mpt.mul %3, %half : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// CHECK-LABEL: @tanh_gelu
// CHECK: mpt.gelu {{.*}}tanh
// CHECK-NOT: mpt.tanh
// CHECK: return
func.func @tanh_gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %half = mpt.constant dense<0.5> : tensor<4xf32>
  %one = mpt.constant dense<1.0> : tensor<4xf32>
  %k = mpt.constant dense<0.044715> : tensor<4xf32>
  %s = mpt.constant dense<0.7978846> : tensor<4xf32>
  %0 = mpt.mul %x, %x : tensor<4xf32>
  %1 = mpt.mul %0, %x : tensor<4xf32>
  %2 = mpt.mul %1, %k : tensor<4xf32>
  %3 = mpt.add %x, %2 : tensor<4xf32>
  %4 = mpt.mul %3, %s : tensor<4xf32>
  %5 = mpt.tanh %4 : tensor<4xf32>
  %6 = mpt.add %5, %one : tensor<4xf32>
  %7 = mpt.mul %x, %half : tensor<4xf32>
  %8 = mpt.mul %7, %6 : tensor<4xf32>
  return %8 : tensor<4xf32>
}

// CHECK-LABEL: @silu
// CHECK: mpt.swish
// CHECK-NOT: mpt.sigmoid
// CHECK: return
func.func @silu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mpt.sigmoid %x : tensor<4xf32>
  %1 = mpt.mul %x, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: @rms_norm
// CHECK: mpt.rms_norm {{.*}} {axis = 1 : i64, epsilon = 9.99
// CHECK-NOT: mpt.reduce
// CHECK: return
func.func @rms_norm(%x: tensor<2x4xf32>, %g: tensor<4xf32>) -> tensor<2x4xf32> {
  %eps = mpt.constant dense<1.0e-6> : tensor<2x1xf32>
  %0 = mpt.mul %x, %x : tensor<2x4xf32>
  %1 = mpt.reduce mean %0 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
  %2 = mpt.reshape %1 : (tensor<2xf32>) -> tensor<2x1xf32>
  %3 = mpt.add %2, %eps : tensor<2x1xf32>
  %4 = mpt.sqrt %3 : tensor<2x1xf32>
  %5 = mpt.reciprocal %4 : tensor<2x1xf32>
  %6 = mpt.broadcast %5 {dims = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x4xf32>
  %7 = mpt.mul %x, %6 : tensor<2x4xf32>
  %8 = mpt.broadcast %g {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
  %9 = mpt.mul %8, %7 : tensor<2x4xf32>
  return %9 : tensor<2x4xf32>
}

// A root that stands along the columns of a square matrix is another row's.
// CHECK-LABEL: @root_of_another_row
// CHECK: mpt.reduce
// CHECK-NOT: mpt.rms_norm
// CHECK: return
func.func @root_of_another_row(%x: tensor<4x4xf32>, %g: tensor<4xf32>) -> tensor<4x4xf32> {
  %eps = mpt.constant dense<1.0e-6> : tensor<4xf32>
  %0 = mpt.mul %x, %x : tensor<4x4xf32>
  %1 = mpt.reduce mean %0 {axes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %2 = mpt.add %1, %eps : tensor<4xf32>
  %3 = mpt.rsqrt %2 : tensor<4xf32>
  %4 = mpt.broadcast %3 {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<4x4xf32>
  %5 = mpt.mul %x, %4 : tensor<4x4xf32>
  %6 = mpt.broadcast %g {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<4x4xf32>
  %7 = mpt.mul %6, %5 : tensor<4x4xf32>
  return %7 : tensor<4x4xf32>
}

// Rows of several axes, their root reshaped and repeated, are.
// CHECK-LABEL: @rows_of_two_axes
// CHECK: mpt.rms_norm
// CHECK-NOT: mpt.reduce
// CHECK: return
func.func @rows_of_two_axes(%x: tensor<4x1x4xf32>, %g: tensor<4xf32>) -> tensor<4x1x4xf32> {
  %eps = mpt.constant dense<1.0e-6> : tensor<4x1xf32>
  %one = mpt.constant dense<1.0> : tensor<4x1xf32>
  %0 = mpt.mul %x, %x : tensor<4x1x4xf32>
  %1 = mpt.reduce mean %0 {axes = array<i64: 2>} : (tensor<4x1x4xf32>) -> tensor<4x1xf32>
  %2 = mpt.add %1, %eps : tensor<4x1xf32>
  %3 = mpt.sqrt %2 : tensor<4x1xf32>
  %4 = mpt.div %one, %3 : tensor<4x1xf32>
  %5 = mpt.reshape %4 : (tensor<4x1xf32>) -> tensor<4xf32>
  %6 = mpt.broadcast %5 {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x1x4xf32>
  %7 = mpt.mul %x, %6 : tensor<4x1x4xf32>
  %8 = mpt.broadcast %g {dims = array<i64: 2>} : (tensor<4xf32>) -> tensor<4x1x4xf32>
  %9 = mpt.mul %8, %7 : tensor<4x1x4xf32>
  return %9 : tensor<4x1x4xf32>
}

// A half and a one are meant as they are written; other gates are no GELU.
// CHECK-LABEL: @nearly_gelu
// CHECK: mpt.erf
// CHECK-NOT: mpt.gelu
// CHECK: return
func.func @nearly_gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = mpt.constant dense<1.41421354> : tensor<4xf32>
  %one = mpt.constant dense<1.001> : tensor<4xf32>
  %half = mpt.constant dense<0.5> : tensor<4xf32>
  %0 = mpt.div %x, %root : tensor<4xf32>
  %1 = mpt.erf %0 : tensor<4xf32>
  %2 = mpt.add %1, %one : tensor<4xf32>
  %3 = mpt.mul %x, %2 : tensor<4xf32>
  %4 = mpt.mul %3, %half : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// So is a root, but for the digits that a file leaves out.
// CHECK-LABEL: @wider_gelu
// CHECK: mpt.erf
// CHECK-NOT: mpt.gelu
// CHECK: return
func.func @wider_gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = mpt.constant dense<1.4155> : tensor<4xf32>
  %one = mpt.constant dense<1.0> : tensor<4xf32>
  %half = mpt.constant dense<0.5> : tensor<4xf32>
  %0 = mpt.div %x, %root : tensor<4xf32>
  %1 = mpt.erf %0 : tensor<4xf32>
  %2 = mpt.add %1, %one : tensor<4xf32>
  %3 = mpt.mul %x, %2 : tensor<4xf32>
  %4 = mpt.mul %3, %half : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// CHECK-LABEL: @gelu_of_16_bits
// CHECK: mpt.gelu
// CHECK-NOT: mpt.erf
// CHECK: return
func.func @gelu_of_16_bits(%x: tensor<4xf16>) -> tensor<4xf16> {
  %root = mpt.constant dense<1.41421354> : tensor<4xf16>
  %one = mpt.constant dense<1.0> : tensor<4xf16>
  %half = mpt.constant dense<0.5> : tensor<4xf16>
  %0 = mpt.div %x, %root : tensor<4xf16>
  %1 = mpt.erf %0 : tensor<4xf16>
  %2 = mpt.add %1, %one : tensor<4xf16>
  %3 = mpt.mul %x, %2 : tensor<4xf16>
  %4 = mpt.mul %3, %half : tensor<4xf16>
  return %4 : tensor<4xf16>
}
