// RUN: split-file %s %t
// RUN: mpt-opt %t/operand.mlir --import-recognize-backward | FileCheck %s --check-prefix=OPERAND
// RUN: mpt-opt %t/inverse.mlir --import-recognize-backward | FileCheck %s --check-prefix=INVERSE
// RUN: mpt-opt %t/swapped.mlir --import-recognize-backward | FileCheck %s --check-prefix=SWAPPED
// RUN: mpt-opt %t/own.mlir --import-recognize-backward | FileCheck %s --check-prefix=OWN
// RUN: mpt-opt %t/pool.mlir --import-recognize-backward | FileCheck %s --check-prefix=POOL
// RUN: mpt-opt %t/moved.mlir --import-recognize-backward --debug-only=import-recognize-backward 2>&1 | FileCheck %s --check-prefix=MOVED

// By the sign of the operand, the other way round.
// OPERAND: %[[Y:.*]] = mpt.relu
// OPERAND: mpt.relu_backward %arg0, %[[Y]]
//--- operand.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%dy: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.relu %w : tensor<2x4xf32>
    %zero = mpt.constant dense<0.0> : tensor<2x4xf32>
    %m = mpt.compare lt %zero, %w : tensor<2x4xf32>
    %dw = mpt.select %m, %dy, %zero : tensor<2x4xi1>, tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// A test for negative values is another function, and so is one that counts zero as positive.
// INVERSE-NOT: mpt.relu_backward
//--- inverse.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%dy: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.relu %w : tensor<2x4xf32>
    %zero = mpt.constant dense<0.0> : tensor<2x4xf32>
    %m = mpt.compare lt %y, %zero : tensor<2x4xf32>
    %dw = mpt.select %m, %zero, %dy : tensor<2x4xi1>, tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// SWAPPED-NOT: mpt.relu_backward
//--- swapped.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%dy: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.relu %w : tensor<2x4xf32>
    %zero = mpt.constant dense<0.0> : tensor<2x4xf32>
    %m = mpt.compare gt %y, %zero : tensor<2x4xf32>
    %dw = mpt.select %m, %zero, %dy : tensor<2x4xi1>, tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// Where our backward pass trains, the file's stays as it is.
// OWN-NOT: mpt.relu_backward
//--- own.mlir
module attributes {onnx.training = {backward = "derived", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%dy: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.relu %w : tensor<2x4xf32>
    %zero = mpt.constant dense<0.0> : tensor<2x4xf32>
    %m = mpt.compare le %y, %zero : tensor<2x4xf32>
    %dw = mpt.select %m, %zero, %dy : tensor<2x4xi1>, tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// Positions in the whole tensor, of which the plane's first one is taken away again.
// POOL: %[[Y:.*]], %[[I:.*]] = mpt.max_pool
// POOL-NOT: mpt.scatter_elements
// POOL: mpt.max_pool_backward %{{.*}}, %[[I]]
//--- pool.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<1x2x4x4xf32> = dense<0.5> : tensor<1x2x4x4xf32>
  func.func @forward(%dy: tensor<1x2x2x2xf32>) -> (tensor<1x2x2x2xf32> {mpt.name = "y"}, tensor<1x2x4x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<1x2x4x4xf32>
    %y, %i = mpt.max_pool %w {dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<1x2x4x4xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xi32>)
    %wide = mpt.cast %i : tensor<1x2x2x2xi32> to tensor<1x2x2x2xi64>
    %plane = mpt.constant dense<[[[[0, 0], [0, 0]], [[16, 16], [16, 16]]]]> : tensor<1x2x2x2xi64>
    %there = mpt.add %wide, %plane : tensor<1x2x2x2xi64>
    %one, %each = mpt.max_pool %w {dilations = array<i64: 1, 1>, kernel = array<i64: 1, 1>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>) -> (tensor<1x2x4x4xf32>, tensor<1x2x4x4xi32>)
    %each64 = mpt.cast %each : tensor<1x2x4x4xi32> to tensor<1x2x4x4xi64>
    %bias = mpt.constant dense<[[[[0]], [[16]]]]> : tensor<1x2x1x1xi64>
    %planes = mpt.broadcast %bias {dims = array<i64: 0, 1, 2, 3>} : (tensor<1x2x1x1xi64>) -> tensor<1x2x4x4xi64>
    %flat = mpt.add %each64, %planes : tensor<1x2x4x4xi64>
    %corner = mpt.slice %flat {sizes = array<i64: 1, 2, 1, 1>, starts = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>} : (tensor<1x2x4x4xi64>) -> tensor<1x2x1x1xi64>
    %corners = mpt.broadcast %corner {dims = array<i64: 0, 1, 2, 3>} : (tensor<1x2x1x1xi64>) -> tensor<1x2x2x2xi64>
    %at = mpt.sub %there, %corners : tensor<1x2x2x2xi64>
    %rows = mpt.reshape %at : (tensor<1x2x2x2xi64>) -> tensor<2x4xi64>
    %updates = mpt.reshape %dy : (tensor<1x2x2x2xf32>) -> tensor<2x4xf32>
    %empty = mpt.constant dense<0.0> : tensor<2x16xf32>
    %sums = mpt.scatter_elements %empty, %rows, %updates {axis = 1 : i64, kind = #mpt<scatter_kind add>} : (tensor<2x16xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<2x16xf32>
    %dw = mpt.reshape %sums : (tensor<2x16xf32>) -> tensor<1x2x4x4xf32>
    return %y, %dw : tensor<1x2x2x2xf32>, tensor<1x2x4x4xf32>
  }
}

// Positions one further are other ones.
// MOVED: not the gradient of a max pooling
// MOVED: mpt.scatter_elements
// MOVED-NOT: mpt.max_pool_backward
//--- moved.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<1x2x4x4xf32> = dense<0.5> : tensor<1x2x4x4xf32>
  func.func @forward(%dy: tensor<1x2x2x2xf32>) -> (tensor<1x2x2x2xf32> {mpt.name = "y"}, tensor<1x2x4x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<1x2x4x4xf32>
    %y, %i = mpt.max_pool %w {dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<1x2x4x4xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xi32>)
    %wide = mpt.cast %i : tensor<1x2x2x2xi32> to tensor<1x2x2x2xi64>
    %plane = mpt.constant dense<1> : tensor<1x2x2x2xi64>
    %there = mpt.add %wide, %plane : tensor<1x2x2x2xi64>
    %zeros = mpt.constant dense<0> : tensor<1x2x2x2xi64>
    %at = mpt.add %there, %zeros : tensor<1x2x2x2xi64>
    %rows = mpt.reshape %at : (tensor<1x2x2x2xi64>) -> tensor<2x4xi64>
    %updates = mpt.reshape %dy : (tensor<1x2x2x2xf32>) -> tensor<2x4xf32>
    %empty = mpt.constant dense<0.0> : tensor<2x16xf32>
    %sums = mpt.scatter_elements %empty, %rows, %updates {axis = 1 : i64, kind = #mpt<scatter_kind add>} : (tensor<2x16xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<2x16xf32>
    %dw = mpt.reshape %sums : (tensor<2x16xf32>) -> tensor<1x2x4x4xf32>
    return %y, %dw : tensor<1x2x2x2xf32>, tensor<1x2x4x4xf32>
  }
}
