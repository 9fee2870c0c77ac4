// RUN: mpt-opt %s --library-round-operands | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[W:.*]] = train.read @w : tensor<16x8xf32>
// CHECK-NEXT: %[[Y:.*]] = library.gemm %arg0, %[[W]] {read_as = f16, transpose_b = true} : tensor<4x8xf16>, tensor<16x8xf32> -> tensor<4x16xf16>
// CHECK-NEXT: return %[[Y]]
train.state parameter @w : tensor<16x8xf32>
func.func @evaluate(%x: tensor<4x8xf16>) -> tensor<4x16xf16> {
  %w = train.read @w : tensor<16x8xf32>
  %n = mpt.cast %w : tensor<16x8xf32> to tensor<16x8xf16>
  %y = mpt.matmul %x, %n {transpose_b = true} : (tensor<4x8xf16>, tensor<16x8xf16>) -> tensor<4x16xf16>
  return %y : tensor<4x16xf16>
}
