// RUN: mpt-opt %s --import-recognize-norms | FileCheck %s
// CHECK: %[[Y:.*]] = mpt.softmax %arg0 {axis = 1 : i64}
// CHECK-NEXT: return %[[Y]]
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  func.func @forward(%x: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}) {
    %0 = mpt.reduce max %x {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %1 = mpt.broadcast %0 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %2 = mpt.sub %x, %1 : tensor<2x4xf32>
    %3 = mpt.exp %2 : tensor<2x4xf32>
    %4 = mpt.reduce sum %3 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %5 = mpt.broadcast %4 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %6 = mpt.div %3, %5 : tensor<2x4xf32>
    return %6 : tensor<2x4xf32>
  }
}
