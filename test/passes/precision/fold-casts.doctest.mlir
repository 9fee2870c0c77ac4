// RUN: mpt-opt %s --precision-fold-casts | FileCheck %s
// Widening is exact, so the way back to f16 is no cast at all; the way through bf16 rounds and stays.
// CHECK: func.func @f
// CHECK-NEXT: %[[R:.*]] = mpt.cast %arg1 : tensor<4xf32> to tensor<4xbf16>
// CHECK-NEXT: %[[B:.*]] = mpt.cast %[[R]] : tensor<4xbf16> to tensor<4xf32>
// CHECK-NEXT: return %arg0, %[[B]]
func.func @f(%x: tensor<4xf16>, %y: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>) {
  %0 = mpt.cast %x : tensor<4xf16> to tensor<4xf32>
  %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xf16>
  %2 = mpt.cast %y : tensor<4xf32> to tensor<4xbf16>
  %3 = mpt.cast %2 : tensor<4xbf16> to tensor<4xf32>
  return %1, %3 : tensor<4xf16>, tensor<4xf32>
}
