// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s

// One over a count that has no bound is below FP16's normal numbers: the product that reads it is wide. The inverse of a
// count of at most 255 is not.
// CHECK-LABEL: func.func @unbounded
// CHECK: mpt.mul {{.*}}operands = [f32, f32]{{.*}}the inverse of a count may be below the narrow type's normal numbers
// CHECK-LABEL: func.func @bounded
// CHECK: mpt.mul {{.*}}operands = [f16, f16]
func.func @unbounded(%v: tensor<4x4xf32>, %n: tensor<4x4xi64>) -> tensor<4x4xf32> {
  %0 = mpt.cast %n : tensor<4x4xi64> to tensor<4x4xf32>
  %1 = mpt.reciprocal %0 : tensor<4x4xf32>
  %2 = mpt.matmul %v, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = mpt.mul %2, %1 : tensor<4x4xf32>
  %4 = mpt.matmul %3, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}
func.func @bounded(%v: tensor<4x4xf32>, %n: tensor<4x4xui8>) -> tensor<4x4xf32> {
  %0 = mpt.cast %n : tensor<4x4xui8> to tensor<4x4xf32>
  %1 = mpt.reciprocal %0 : tensor<4x4xf32>
  %2 = mpt.matmul %v, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = mpt.mul %2, %1 : tensor<4x4xf32>
  %4 = mpt.matmul %3, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}
