// RUN: mpt-opt %s --library-chain-gemms | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[D:.*]], %[[S:.*]] = library.gemm %arg0, %arg1 {epilogue = #library.epilogue<sum = a>, transpose_a = true} : tensor<8192x64xbf16>, tensor<8192x32xbf16> -> tensor<64x32xf32> sums tensor<64xf32>
// CHECK-NEXT: return %[[S]], %[[D]]
func.func @gradient(%dy: tensor<8192x64xbf16>, %x: tensor<8192x32xbf16>) -> (tensor<64xf32>, tensor<64x32xf32>) {
  %s = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<8192x64xbf16>) -> tensor<64xf32>
  %w = mpt.matmul %dy, %x {transpose_a = true} : (tensor<8192x64xbf16>, tensor<8192x32xbf16>) -> tensor<64x32xbf16>
  %d = mpt.cast %w : tensor<64x32xbf16> to tensor<64x32xf32>
  return %s, %d : tensor<64xf32>, tensor<64x32xf32>
}
