// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s

// Bounded scores plus a mask: how far below the masked ones lie is no bound of the others, so that sum and softmax keep
// the types that they have without it. Of a sum that ends in no choice it is a bound.
// CHECK-LABEL: func.func @scores
// CHECK: mpt.add {{.*}}operands = [f16, f16]
// CHECK-LABEL: func.func @values
// CHECK: mpt.add {{.*}}results = [f32], rule = "{{.*}}outside the narrow type's range"
func.func @scores(%v: tensor<4x4xf32>, %mask: tensor<4x4xi1>) -> tensor<4x4xf32> {
  %none = mpt.constant dense<0.0> : tensor<4x4xf32>
  %far = mpt.constant dense<-1.0e9> : tensor<4x4xf32>
  %0 = mpt.select %mask, %none, %far : tensor<4x4xi1>, tensor<4x4xf32>
  %1 = mpt.sin %v : tensor<4x4xf32>
  %2 = mpt.matmul %1, %1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = mpt.add %2, %0 : tensor<4x4xf32>
  %4 = mpt.softmax %3 {axis = 1} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}
func.func @values(%v: tensor<4x4xf32>, %mask: tensor<4x4xi1>) -> tensor<4x4xf32> {
  %none = mpt.constant dense<0.0> : tensor<4x4xf32>
  %far = mpt.constant dense<-1.0e9> : tensor<4x4xf32>
  %0 = mpt.select %mask, %none, %far : tensor<4x4xi1>, tensor<4x4xf32>
  %1 = mpt.sin %v : tensor<4x4xf32>
  %2 = mpt.matmul %1, %1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = mpt.add %2, %0 : tensor<4x4xf32>
  %4 = mpt.matmul %3, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}
