// RUN: mpt-opt %s --import-recognize-backward | FileCheck %s
// The gradient of a ReLU as exporters write it.
// CHECK: %[[Y:.*]] = mpt.relu
// CHECK-NOT: mpt.select
// CHECK: mpt.relu_backward %arg0, %[[Y]]
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%dy: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.relu %w : tensor<2x4xf32>
    %zero = mpt.constant dense<0.0> : tensor<2x4xf32>
    %off = mpt.compare le %y, %zero : tensor<2x4xf32>
    %dw = mpt.select %off, %zero, %dy : tensor<2x4xi1>, tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}
