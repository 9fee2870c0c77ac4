// RUN: mpt-opt %s --import-recognize-gradients | FileCheck %s
// CHECK: %[[Y:.*]] = mpt.softmax %{{.*}}
// CHECK: mpt.softmax_backward %arg1, %[[Y]]
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.softmax %w {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %0 = mpt.mul %dy, %y : tensor<2x4xf32>
    %1 = mpt.reduce sum %0 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %2 = mpt.broadcast %1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %3 = mpt.mul %2, %y : tensor<2x4xf32>
    %4 = mpt.sub %0, %3 : tensor<2x4xf32>
    return %y, %4 : tensor<2x4xf32>, tensor<2x4xf32>
  }
}
