// RUN: split-file %s %t
// RUN: mpt-opt %t/weights.mlir --import-recognize-backward | FileCheck %s --check-prefix=WEIGHTS
// RUN: mpt-opt %t/turned.mlir --import-recognize-backward --debug-only=import-recognize-backward 2>&1 | FileCheck %s --check-prefix=TURNED
// RUN: mpt-opt %t/groups.mlir --import-recognize-backward | FileCheck %s --check-prefix=GROUPS
// RUN: mpt-opt %t/last.mlir --import-recognize-backward | FileCheck %s --check-prefix=LAST
// RUN: mpt-opt %t/plain.mlir --import-recognize-backward | FileCheck %s --check-prefix=PLAIN

// Strides become dilations and leave a rest, which is cut off.
// WEIGHTS: mpt.conv %arg0
// WEIGHTS-NOT: mpt.conv %
// WEIGHTS: mpt.conv_backward_weights %arg0, %arg1 {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 2, 2>} : (tensor<2x3x8x8xf32>, tensor<2x5x4x4xf32>) -> tensor<5x3x3x3xf32>
// WEIGHTS-NOT: mpt.slice
//--- weights.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x3x3x3xf32> = dense<0.5> : tensor<5x3x3x3xf32>
  func.func @forward(%x: tensor<2x3x8x8xf32>, %dy: tensor<2x5x4x4xf32>) -> (tensor<2x5x4x4xf32> {mpt.name = "y"}, tensor<5x3x3x3xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x3x3x3xf32>
    %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 2, 2>} : (tensor<2x3x8x8xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
    %planes = mpt.reshape %x : (tensor<2x3x8x8xf32>) -> tensor<2x1x3x8x8xf32>
    %turned = mpt.transpose %planes {permutation = array<i64: 2, 1, 0, 3, 4>} : (tensor<2x1x3x8x8xf32>) -> tensor<3x1x2x8x8xf32>
    %a = mpt.reshape %turned : (tensor<3x1x2x8x8xf32>) -> tensor<3x2x8x8xf32>
    %b = mpt.transpose %dy {permutation = array<i64: 1, 0, 2, 3>} : (tensor<2x5x4x4xf32>) -> tensor<5x2x4x4xf32>
    %wide = mpt.conv %a, %b {dilations = array<i64: 2, 2>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<3x2x8x8xf32>, tensor<5x2x4x4xf32>) -> tensor<3x5x4x4xf32>
    %part = mpt.slice %wide {sizes = array<i64: 3, 5, 3, 4>, starts = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>} : (tensor<3x5x4x4xf32>) -> tensor<3x5x3x4xf32>
    %cut = mpt.slice %part {sizes = array<i64: 3, 5, 3, 3>, starts = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>} : (tensor<3x5x3x4xf32>) -> tensor<3x5x3x3xf32>
    %dw = mpt.transpose %cut {permutation = array<i64: 1, 0, 2, 3>} : (tensor<3x5x3x3xf32>) -> tensor<5x3x3x3xf32>
    return %y, %dw : tensor<2x5x4x4xf32>, tensor<5x3x3x3xf32>
  }
}

// Planes that are transposed as well are another tensor.
// TURNED: not the gradient of weights
// TURNED-NOT: mpt.conv_backward_weights
//--- turned.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x3x3x3xf32> = dense<0.5> : tensor<5x3x3x3xf32>
  func.func @forward(%x: tensor<2x3x8x8xf32>, %dy: tensor<2x5x4x4xf32>) -> (tensor<2x5x4x4xf32> {mpt.name = "y"}, tensor<5x3x3x3xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x3x3x3xf32>
    %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 2, 2>} : (tensor<2x3x8x8xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
    %planes = mpt.reshape %x : (tensor<2x3x8x8xf32>) -> tensor<2x1x3x8x8xf32>
    %turned = mpt.transpose %planes {permutation = array<i64: 2, 1, 0, 4, 3>} : (tensor<2x1x3x8x8xf32>) -> tensor<3x1x2x8x8xf32>
    %a = mpt.reshape %turned : (tensor<3x1x2x8x8xf32>) -> tensor<3x2x8x8xf32>
    %b = mpt.transpose %dy {permutation = array<i64: 1, 0, 2, 3>} : (tensor<2x5x4x4xf32>) -> tensor<5x2x4x4xf32>
    %wide = mpt.conv %a, %b {dilations = array<i64: 2, 2>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<3x2x8x8xf32>, tensor<5x2x4x4xf32>) -> tensor<3x5x4x4xf32>
    %part = mpt.slice %wide {sizes = array<i64: 3, 5, 3, 4>, starts = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>} : (tensor<3x5x4x4xf32>) -> tensor<3x5x3x4xf32>
    %cut = mpt.slice %part {sizes = array<i64: 3, 5, 3, 3>, starts = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>} : (tensor<3x5x3x4xf32>) -> tensor<3x5x3x3xf32>
    %dw = mpt.transpose %cut {permutation = array<i64: 1, 0, 2, 3>} : (tensor<3x5x3x3xf32>) -> tensor<5x3x3x3xf32>
    return %y, %dw : tensor<2x5x4x4xf32>, tensor<5x3x3x3xf32>
  }
}

// Two groups of two channels and three filters each.
// GROUPS: mpt.conv_backward_weights %arg0, %arg1 {dilations = array<i64: 1, 1>, groups = 2 : i64
// GROUPS-SAME: -> tensor<6x2x3x3xf32>
//--- groups.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<6x2x3x3xf32> = dense<0.5> : tensor<6x2x3x3xf32>
  func.func @forward(%x: tensor<3x4x8x8xf32>, %dy: tensor<3x6x6x6xf32>) -> (tensor<3x6x6x6xf32> {mpt.name = "y"}, tensor<6x2x3x3xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<6x2x3x3xf32>
    %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 2 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<3x4x8x8xf32>, tensor<6x2x3x3xf32>) -> tensor<3x6x6x6xf32>
    %planes = mpt.reshape %x : (tensor<3x4x8x8xf32>) -> tensor<3x2x2x8x8xf32>
    %turned = mpt.transpose %planes {permutation = array<i64: 2, 1, 0, 3, 4>} : (tensor<3x2x2x8x8xf32>) -> tensor<2x2x3x8x8xf32>
    %a = mpt.reshape %turned : (tensor<2x2x3x8x8xf32>) -> tensor<2x6x8x8xf32>
    %b = mpt.transpose %dy {permutation = array<i64: 1, 0, 2, 3>} : (tensor<3x6x6x6xf32>) -> tensor<6x3x6x6xf32>
    %c = mpt.conv %a, %b {dilations = array<i64: 1, 1>, groups = 2 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<2x6x8x8xf32>, tensor<6x3x6x6xf32>) -> tensor<2x6x3x3xf32>
    %dw = mpt.transpose %c {permutation = array<i64: 1, 0, 2, 3>} : (tensor<2x6x3x3xf32>) -> tensor<6x2x3x3xf32>
    return %y, %dw : tensor<3x6x6x6xf32>, tensor<6x2x3x3xf32>
  }
}

// The result's gradient comes with its channels last, and its transposition was joined with the batch's.
// LAST: %[[DY:.*]] = mpt.transpose %{{.*}} {permutation = array<i64: 1, 0, 2, 3>}
// LAST: mpt.conv_backward_weights %arg0, %[[DY]]
//--- last.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x3x3x3xf32> = dense<0.5> : tensor<5x3x3x3xf32>
  func.func @forward(%x: tensor<2x3x4x4xf32>, %dy: tensor<2x4x4x5xf32>) -> (tensor<2x5x4x4xf32> {mpt.name = "y"}, tensor<5x3x3x3xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x3x3x3xf32>
    %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
    %a = mpt.transpose %x {permutation = array<i64: 1, 0, 2, 3>} : (tensor<2x3x4x4xf32>) -> tensor<3x2x4x4xf32>
    %b = mpt.transpose %dy {permutation = array<i64: 3, 0, 1, 2>} : (tensor<2x4x4x5xf32>) -> tensor<5x2x4x4xf32>
    %c = mpt.conv %a, %b {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<3x2x4x4xf32>, tensor<5x2x4x4xf32>) -> tensor<3x5x3x3xf32>
    %dw = mpt.transpose %c {permutation = array<i64: 1, 0, 2, 3>} : (tensor<3x5x3x3xf32>) -> tensor<5x3x3x3xf32>
    return %y, %dw : tensor<2x5x4x4xf32>, tensor<5x3x3x3xf32>
  }
}

// A convolution of another kind: nothing is exchanged.
// PLAIN-NOT: mpt.conv_backward_weights
//--- plain.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x3x3x3xf32> = dense<0.5> : tensor<5x3x3x3xf32>
  func.func @forward(%x: tensor<2x3x4x4xf32>, %k: tensor<3x5x3x3xf32>) -> (tensor<2x5x4x4xf32> {mpt.name = "y"}, tensor<5x3x3x3xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x3x3x3xf32>
    %y = mpt.conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
    %b = mpt.transpose %k {permutation = array<i64: 1, 0, 2, 3>} : (tensor<3x5x3x3xf32>) -> tensor<5x3x3x3xf32>
    %c = mpt.conv %x, %b {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
    %d = mpt.reduce sum %c {axes = array<i64: 0, 1, 2, 3>} : (tensor<2x5x4x4xf32>) -> tensor<f32>
    %dw = mpt.broadcast %d {dims = array<i64>} : (tensor<f32>) -> tensor<5x3x3x3xf32>
    return %y, %dw : tensor<2x5x4x4xf32>, tensor<5x3x3x3xf32>
  }
}
