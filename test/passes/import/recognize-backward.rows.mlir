// RUN: split-file %s %t
// RUN: mpt-opt %t/masked.mlir --import-recognize-backward | FileCheck %s --check-prefix=MASKED
// RUN: mpt-opt %t/padding.mlir --import-recognize-backward | FileCheck %s --check-prefix=PADDING
// RUN: mpt-opt %t/other.mlir --import-recognize-backward --debug-only=import-recognize-backward 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: mpt-opt %t/positions.mlir --import-recognize-backward | FileCheck %s --check-prefix=POSITIONS
// RUN: mpt-opt %t/pool.mlir --import-recognize-backward | FileCheck %s --check-prefix=POOL
// RUN: mpt-opt %t/share.mlir --import-recognize-backward | FileCheck %s --check-prefix=SHARE
// RUN: mpt-opt %t/weighted.mlir --import-recognize-backward | FileCheck %s --check-prefix=WEIGHTED
// RUN: mpt-opt %t/strides.mlir --import-recognize-backward --debug-only=import-recognize-backward 2>&1 | FileCheck %s --check-prefix=STRIDES

// An embedding: indices brought into range, and updates of those beyond it left out.
// MASKED-NOT: mpt.select
// MASKED: mpt.scatter_add %arg0, %arg1 {axis = 0 : i64} : (tensor<6xi64>, tensor<6x4xf32>) -> tensor<5x4xf32>
// MASKED-NOT: mpt.scatter_nd
//--- masked.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x4xf32> = dense<0.5> : tensor<5x4xf32>
  func.func @forward(%i: tensor<6xi64>, %dy: tensor<6x4xf32>) -> (tensor<6x4xf32> {mpt.name = "y"}, tensor<5x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x4xf32>
    %y = mpt.gather %w, %i {axis = 0 : i64} : (tensor<5x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    %none = mpt.constant dense<0> : tensor<6xi64>
    %rows = mpt.constant dense<5> : tensor<6xi64>
    %low = mpt.constant dense<-5> : tensor<6xi64>
    %high = mpt.constant dense<4> : tensor<6xi64>
    %zeros = mpt.constant dense<0.0> : tensor<6x4xf32>
    %table = mpt.constant dense<0.0> : tensor<5x4xf32>
    %a = mpt.compare ge %i, %none : tensor<6xi64>
    %b = mpt.compare lt %i, %rows : tensor<6xi64>
    %in = mpt.and %a, %b : tensor<6xi1>
    %column = mpt.reshape %in : (tensor<6xi1>) -> tensor<6x1xi1>
    %out = mpt.not %column : tensor<6x1xi1>
    %mask = mpt.broadcast %out {dims = array<i64: 0, 1>} : (tensor<6x1xi1>) -> tensor<6x4xi1>
    %updates = mpt.select %mask, %zeros, %dy : tensor<6x4xi1>, tensor<6x4xf32>
    %c = mpt.max %i, %low : tensor<6xi64>
    %d = mpt.min %c, %high : tensor<6xi64>
    %tuples = mpt.reshape %d : (tensor<6xi64>) -> tensor<6x1xi64>
    %dw = mpt.scatter_nd %table, %tuples, %updates {kind = #mpt<scatter_kind add>} : (tensor<5x4xf32>, tensor<6x1xi64>, tensor<6x4xf32>) -> tensor<5x4xf32>
    return %y, %dw : tensor<6x4xf32>, tensor<5x4xf32>
  }
}

// Row 3 has no gradient: its updates stay masked.
// PADDING: %[[U:.*]] = mpt.select
// PADDING: mpt.scatter_add %arg0, %[[U]]
//--- padding.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x4xf32> = dense<0.5> : tensor<5x4xf32>
  func.func @forward(%i: tensor<2x3xi64>, %dy: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32> {mpt.name = "y"}, tensor<5x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x4xf32>
    %y = mpt.gather %w, %i {axis = 0 : i64} : (tensor<5x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
    %padding = mpt.constant dense<3> : tensor<2x3xi64>
    %zeros = mpt.constant dense<0.0> : tensor<2x3x4xf32>
    %table = mpt.constant dense<0.0> : tensor<5x4xf32>
    %is = mpt.compare eq %i, %padding : tensor<2x3xi64>
    %column = mpt.reshape %is : (tensor<2x3xi1>) -> tensor<2x3x1xi1>
    %mask = mpt.broadcast %column {dims = array<i64: 0, 1, 2>} : (tensor<2x3x1xi1>) -> tensor<2x3x4xi1>
    %updates = mpt.select %mask, %zeros, %dy : tensor<2x3x4xi1>, tensor<2x3x4xf32>
    %tuples = mpt.reshape %i : (tensor<2x3xi64>) -> tensor<2x3x1xi64>
    %dw = mpt.scatter_nd %table, %tuples, %updates {kind = #mpt<scatter_kind add>} : (tensor<5x4xf32>, tensor<2x3x1xi64>, tensor<2x3x4xf32>) -> tensor<5x4xf32>
    return %y, %dw : tensor<2x3x4xf32>, tensor<5x4xf32>
  }
}

// The row after the one that was read.
// OTHER: not the gradient of an embedding: no lookup has its indices
// OTHER-NOT: mpt.scatter_add
//--- other.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x4xf32> = dense<0.5> : tensor<5x4xf32>
  func.func @forward(%i: tensor<6xi64>, %dy: tensor<6x4xf32>) -> (tensor<6x4xf32> {mpt.name = "y"}, tensor<5x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x4xf32>
    %y = mpt.gather %w, %i {axis = 0 : i64} : (tensor<5x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    %one = mpt.constant dense<1> : tensor<6xi64>
    %high = mpt.constant dense<4> : tensor<6xi64>
    %table = mpt.constant dense<0.0> : tensor<5x4xf32>
    %next = mpt.add %i, %one : tensor<6xi64>
    %last = mpt.min %next, %high : tensor<6xi64>
    %tuples = mpt.reshape %last : (tensor<6xi64>) -> tensor<6x1xi64>
    %dw = mpt.scatter_nd %table, %tuples, %dy {kind = #mpt<scatter_kind add>} : (tensor<5x4xf32>, tensor<6x1xi64>, tensor<6x4xf32>) -> tensor<5x4xf32>
    return %y, %dw : tensor<6x4xf32>, tensor<5x4xf32>
  }
}

// An embedding of positions, which are constant.
// POSITIONS: mpt.scatter_add %{{.*}}, %arg0
// POSITIONS-NOT: mpt.scatter_nd
//--- positions.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<5x4xf32> = dense<0.5> : tensor<5x4xf32>
  func.func @forward(%dy: tensor<3x4xf32>) -> (tensor<3x4xf32> {mpt.name = "y"}, tensor<5x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<5x4xf32>
    %i = mpt.constant dense<[0, 1, 2]> : tensor<3xi64>
    %y = mpt.gather %w, %i {axis = 0 : i64} : (tensor<5x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
    %table = mpt.constant dense<0.0> : tensor<5x4xf32>
    %tuples = mpt.constant dense<[[0], [1], [2]]> : tensor<3x1xi64>
    %dw = mpt.scatter_nd %table, %tuples, %dy {kind = #mpt<scatter_kind add>} : (tensor<5x4xf32>, tensor<3x1xi64>, tensor<3x4xf32>) -> tensor<5x4xf32>
    return %y, %dw : tensor<3x4xf32>, tensor<5x4xf32>
  }
}

// An average pooling: planes apart from each other, divided by four, spread over windows of four ones.
// POOL-NOT: mpt.conv_backward_data
// POOL-NOT: mpt.div
// POOL: mpt.avg_pool_backward %{{.*}} {count_include_pad = true, {{.*}}} : (tensor<1x2x2x2xf32>) -> tensor<1x2x4x4xf32>
//--- pool.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<1x2x4x4xf32> = dense<0.5> : tensor<1x2x4x4xf32>
  func.func @forward(%dy: tensor<1x2x2x2xf32>) -> (tensor<1x2x2x2xf32> {mpt.name = "y"}, tensor<1x2x4x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<1x2x4x4xf32>
    %y = mpt.avg_pool %w {count_include_pad = true, dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
    %four = mpt.constant dense<4.0> : tensor<2x1x2x2xf32>
    %ones = mpt.constant dense<1.0> : tensor<1x1x2x2xf32>
    %planes = mpt.reshape %dy : (tensor<1x2x2x2xf32>) -> tensor<2x1x2x2xf32>
    %share = mpt.div %planes, %four : tensor<2x1x2x2xf32>
    %spread = mpt.conv_backward_data %share, %ones {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<2x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<2x1x4x4xf32>
    %dw = mpt.reshape %spread : (tensor<2x1x4x4xf32>) -> tensor<1x2x4x4xf32>
    return %y, %dw : tensor<1x2x2x2xf32>, tensor<1x2x4x4xf32>
  }
}

// By a product with a quarter.
// SHARE-NOT: mpt.conv_backward_data
// SHARE: mpt.avg_pool_backward %arg0
//--- share.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x1x4x4xf32> = dense<0.5> : tensor<2x1x4x4xf32>
  func.func @forward(%dy: tensor<2x1x2x2xf32>) -> (tensor<2x1x2x2xf32> {mpt.name = "y"}, tensor<2x1x4x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x1x4x4xf32>
    %y = mpt.avg_pool %w {count_include_pad = true, dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x2x2xf32>
    %quarter = mpt.constant dense<0.25> : tensor<2x1x2x2xf32>
    %ones = mpt.constant dense<1.0> : tensor<1x1x2x2xf32>
    %share = mpt.mul %quarter, %dy : tensor<2x1x2x2xf32>
    %dw = mpt.conv_backward_data %share, %ones {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<2x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<2x1x4x4xf32>
    return %y, %dw : tensor<2x1x2x2xf32>, tensor<2x1x4x4xf32>
  }
}

// A third of each is no mean of four.
// WEIGHTED-NOT: mpt.avg_pool_backward
// WEIGHTED: mpt.conv_backward_data
//--- weighted.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x1x4x4xf32> = dense<0.5> : tensor<2x1x4x4xf32>
  func.func @forward(%dy: tensor<2x1x2x2xf32>) -> (tensor<2x1x2x2xf32> {mpt.name = "y"}, tensor<2x1x4x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x1x4x4xf32>
    %y = mpt.avg_pool %w {count_include_pad = true, dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x2x2xf32>
    %three = mpt.constant dense<3.0> : tensor<2x1x2x2xf32>
    %ones = mpt.constant dense<1.0> : tensor<1x1x2x2xf32>
    %share = mpt.div %dy, %three : tensor<2x1x2x2xf32>
    %dw = mpt.conv_backward_data %share, %ones {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<2x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<2x1x4x4xf32>
    return %y, %dw : tensor<2x1x2x2xf32>, tensor<2x1x4x4xf32>
  }
}

// The forward pass pools with other strides.
// STRIDES: not the gradient of an average pooling: none has these windows
// STRIDES-NOT: mpt.avg_pool_backward
//--- strides.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x1x4x4xf32> = dense<0.5> : tensor<2x1x4x4xf32>
  func.func @forward(%dy: tensor<2x1x2x2xf32>) -> (tensor<2x1x3x3xf32> {mpt.name = "y"}, tensor<2x1x4x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x1x4x4xf32>
    %y = mpt.avg_pool %w {count_include_pad = true, dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x3x3xf32>
    %four = mpt.constant dense<4.0> : tensor<2x1x2x2xf32>
    %ones = mpt.constant dense<1.0> : tensor<1x1x2x2xf32>
    %share = mpt.div %dy, %four : tensor<2x1x2x2xf32>
    %dw = mpt.conv_backward_data %share, %ones {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 0, 0>, pads_low = array<i64: 0, 0>, strides = array<i64: 2, 2>} : (tensor<2x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<2x1x4x4xf32>
    return %y, %dw : tensor<2x1x3x3xf32>, tensor<2x1x4x4xf32>
  }
}
