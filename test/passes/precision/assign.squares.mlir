// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s

// The square of something of an input's magnitude, as in a power spectrum, is wide itself, not only its readers.
// CHECK-LABEL: func.func @spectrum
// CHECK: mpt.mul {{.*}}operands = [f32, f32], results = [f32], rule = "its powers may leave the narrow type's range"
func.func @spectrum(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = mpt.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = mpt.mul %0, %0 : tensor<8x8xf32>
  %2 = mpt.tanh %1 : tensor<8x8xf32>
  %3 = mpt.matmul %2, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}
