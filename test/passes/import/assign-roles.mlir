// RUN: mpt-opt %s --import-assign-roles --split-input-file | FileCheck %s
// RUN: mpt-opt %s '--import-assign-roles=train=other freeze=w' --split-input-file | FileCheck %s --check-prefix=ASKED
// RUN: not mpt-opt %s '--import-assign-roles=train=wait' --split-input-file 2>&1 | FileCheck %s --check-prefix=WRONG

// What an exporter declares comes before use, and its word is used up.
// CHECK-LABEL: module @declared
// CHECK-SAME: held = {w = "no parameter of the exporter's module"}
// CHECK: train.state constant @w
// CHECK-NOT: onnx.declared
// CHECK: train.state parameter @other
// ASKED-LABEL: module @declared
// ASKED-SAME: held = {w = "--freeze"}
// ASKED: train.state parameter @w {{.*}}frozen
// ASKED: train.state parameter @other
// WRONG: error: --train: expected an expression that matches a whole name, got 'wait', which no tensor of the file has; {{.*}}'w'
module @declared {
  train.state constant @w : tensor<3x65xf32> = dense<1.0> : tensor<3x65xf32> {onnx.declared = #onnx<declared other>}
  train.state constant @other : tensor<2x65xf32> = dense<1.0> : tensor<2x65xf32> {onnx.declared = #onnx<declared parameter>}
  func.func @main(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x65xf32> {mpt.name = "y"}) {
    %w = train.read @w : tensor<3x65xf32>
    %o = train.read @other : tensor<2x65xf32>
    %h = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", version = 17 : i64}> : (tensor<2x3xf32>, tensor<3x65xf32>) -> tensor<2x65xf32>
    %y = "onnx.node"(%h, %o) <{attrs = {}, domain = "", op_type = "Max", version = 17 : i64}> : (tensor<2x65xf32>, tensor<2x65xf32>) -> tensor<2x65xf32>
    return %y : tensor<2x65xf32>
  }
}

// -----

// Parts of what the file has as one keep their values, and the manifest tells whose they were.
// CHECK-LABEL: module @separated
// CHECK-SAME: separated = {b.weight = "a.weight"}
// CHECK: train.state parameter @a.weight
// CHECK-NOT: onnx.separated_from
// CHECK: train.state parameter @b.weight
module @separated {
  train.state constant @a.weight : tensor<3x3xf32> = dense<1.0> : tensor<3x3xf32>
  train.state constant @b.weight : tensor<3x3xf32> = dense<1.0> : tensor<3x3xf32> {onnx.separated_from = "a.weight"}
  train.state constant @w : tensor<1xf32> = dense<3.0> : tensor<1xf32>
  train.state constant @other : tensor<1xf32> = dense<3.0> : tensor<1xf32>
  func.func @main(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x3xf32> {mpt.name = "y"}) {
    %a = train.read @a.weight : tensor<3x3xf32>
    %b = train.read @b.weight : tensor<3x3xf32>
    %h = "onnx.node"(%x, %a) <{attrs = {}, domain = "", op_type = "MatMul", version = 17 : i64}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %y = "onnx.node"(%h, %b) <{attrs = {}, domain = "", op_type = "MatMul", version = 17 : i64}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    return %y : tensor<2x3xf32>
  }
}

// -----

// In a joint graph the outputs say what trains, and which other tensors the step renews.
// CHECK-LABEL: module @joint
// CHECK-SAME: held = {other = "the file's step leaves it"}
// CHECK: train.state parameter @w
// CHECK-NOT: frozen
// CHECK: train.state parameter @other {{.*}}frozen
// CHECK: train.state statistic @mean
// CHECK: train.state counter @count
module @joint attributes {onnx.training = {loss = "loss", backward = "file", gradients = {g = @w}, next = {m = @mean, c = @count}}} {
  train.state constant @w : tensor<3x3xf32> = dense<1.0> : tensor<3x3xf32>
  train.state constant @other : tensor<3x3xf32> = dense<1.0> : tensor<3x3xf32>
  train.state constant @mean : tensor<3xf32> = dense<1.0> : tensor<3xf32>
  train.state constant @count : tensor<1xi64> = dense<1> : tensor<1xi64>
  func.func @main(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x3xf32> {mpt.name = "loss"}, tensor<3x3xf32> {mpt.name = "g"}, tensor<3xf32> {mpt.name = "m"}, tensor<1xi64> {mpt.name = "c"}) {
    %w = train.read @w : tensor<3x3xf32>
    %o = train.read @other : tensor<3x3xf32>
    %m = train.read @mean : tensor<3xf32>
    %c = train.read @count : tensor<1xi64>
    %h = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", version = 17 : i64}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %y = "onnx.node"(%h, %o) <{attrs = {}, domain = "", op_type = "MatMul", version = 17 : i64}> : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %g = "onnx.node"(%x, %y) <{attrs = {transA = 1 : i64}, domain = "", op_type = "Gemm", version = 17 : i64}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>
    %n = "onnx.node"(%m, %m) <{attrs = {}, domain = "", op_type = "Add", version = 17 : i64}> : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %d = "onnx.node"(%c, %c) <{attrs = {}, domain = "", op_type = "Add", version = 17 : i64}> : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
    return %y, %g, %n, %d : tensor<2x3xf32>, tensor<3x3xf32>, tensor<3xf32>, tensor<1xi64>
  }
}
