// RUN: mpt-opt %s --fusion-decompose | FileCheck %s
// Few results from many elements: sums of a fixed number of blocks, then the sum of these.
// CHECK: %[[B:.*]] = mpt.reshape %arg0 : (tensor<65536x8xf32>) -> tensor<64x1024x8xf32>
// CHECK: %[[P:.*]] = mpt.reduce sum %[[B]] {axes = array<i64: 1>} : (tensor<64x1024x8xf32>) -> tensor<64x8xf32>
// CHECK: mpt.reduce sum %[[P]] {axes = array<i64: 0>} : (tensor<64x8xf32>) -> tensor<8xf32>
func.func @sums(%x: tensor<65536x8xf32>) -> tensor<8xf32> {
  %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<65536x8xf32>) -> tensor<8xf32>
  return %s : tensor<8xf32>
}
