// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize | FileCheck %s
// The transpose is a view, the GEMM a library call that writes the output itself.
// CHECK: func.func @evaluate(%[[X:.*]]: memref<3x2xf32> {mpt.name = "x"}, %[[Y:.*]]: memref<2x4xf32> {mpt.name = "y", mpt.output})
// CHECK: %[[W:.*]] = rt.state @w : memref<3x4xf32>
// CHECK: %[[T:.*]] = rt.view %[[X]][0] : memref<3x2xf32> to memref<2x3xf32, strided<[1, 2]>>
// CHECK: rt.gemm %[[T]], %[[W]] into %[[Y]]
train.state parameter @w : tensor<3x4xf32>
func.func @evaluate(%x: tensor<3x2xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"}) {
  %w = train.read @w : tensor<3x4xf32>
  %t = mpt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %y = mpt.matmul %t, %w : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
