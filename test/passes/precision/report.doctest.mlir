// RUN: mpt-opt %s --precision-assign=policy=amp-f16 --precision-insert-casts --precision-report -o /dev/null | FileCheck %s
// CHECK: precision report, policy amp-f16
// CHECK: dense mpt.matmul#0 : tensor<8x2xf32>  contraction  because class contraction -> narrow
// CHECK: casts
// CHECK: evaluate {{.*}} : tensor<8x4xf32> to tensor<8x4xf16>, 192 bytes
// CHECK: evaluate {{.*}} : tensor<4x2xf32> to tensor<4x2xf16>, 48 bytes
func.func @evaluate(%x: tensor<8x4xf32>, %w: tensor<4x2xf32>) -> tensor<8x2xf32> {
  %y = mpt.matmul %x, %w : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32> loc("dense")
  return %y : tensor<8x2xf32>
}
