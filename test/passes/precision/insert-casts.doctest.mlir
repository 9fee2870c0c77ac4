// RUN: mpt-opt %s --precision-assign=policy=amp-f16 --precision-insert-casts | FileCheck %s
// One cast of x serves both GEMMs; the last GEMM's result is wide, so nothing is cast there.
// CHECK-LABEL: func.func @evaluate
// CHECK-SAME: mpt.lossy_casts = 2 : i64
// CHECK: %[[X:.*]] = mpt.cast %arg0 : tensor<8x4xf32> to tensor<8x4xf16>
// CHECK: %[[W:.*]] = mpt.cast %arg1 : tensor<4x4xf32> to tensor<4x4xf16>
// CHECK: %[[Y:.*]] = mpt.matmul %[[X]], %[[W]] {{.*}} -> tensor<8x4xf16>
// CHECK: mpt.matmul %[[X]], %[[Y]] {{.*}}transpose_a = true} : {{.*}} -> tensor<4x4xf32>
// CHECK-NOT: mpt.cast
func.func @evaluate(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = mpt.matmul %x, %w : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %z = mpt.matmul %x, %y {transpose_a = true} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}
