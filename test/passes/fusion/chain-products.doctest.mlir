// RUN: mpt-opt %s --fusion-chain-products | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[D:.*]] = mpt.matmul %arg0, %arg1 {transpose_a = true} : (tensor<8192x64xbf16>, tensor<8192x32xbf16>) -> tensor<64x32xf32>
// CHECK: %[[S:.*]] = mpt.fusion(%arg0, %[[D]]) {mpt.epilogue = 1024 : i64} : (tensor<8192x64xbf16>, tensor<64x32xf32>) -> tensor<64xf32>
// CHECK: return %[[S]], %[[D]]
func.func @gradient(%dy: tensor<8192x64xbf16>, %x: tensor<8192x32xbf16>) -> (tensor<64xf32>, tensor<64x32xf32>) {
  %s = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<8192x64xbf16>) -> tensor<64xf32>
  %w = mpt.matmul %dy, %x {transpose_a = true} : (tensor<8192x64xbf16>, tensor<8192x32xbf16>) -> tensor<64x32xbf16>
  %d = mpt.cast %w : tensor<64x32xbf16> to tensor<64x32xf32>
  return %s, %d : tensor<64xf32>, tensor<64x32xf32>
}
