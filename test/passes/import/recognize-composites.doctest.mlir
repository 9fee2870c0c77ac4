// RUN: mpt-opt %s --import-recognize-composites | FileCheck %s
// CHECK: %[[Y:.*]] = mpt.swish %arg0
// CHECK-NEXT: return %[[Y]]
func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mpt.sigmoid %x : tensor<4xf32>
  %1 = mpt.mul %x, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
