// RUN: mpt-opt %s --import-assign-roles | FileCheck %s
// The matrix trains; the table of frequencies feeds an angle, and is held; the small one is no state any more.
// CHECK: module attributes {mpt.manifest = {held = {rope.frequencies = "feeds an angle"
// CHECK: train.state parameter @fc.weight
// CHECK: train.state constant @rope.frequencies
// CHECK-NOT: train.state
// CHECK: mpt.constant dense<2.000000e+00> : tensor<1xf32>
train.state constant @fc.weight : tensor<3x65xf32> = dense<1.0> : tensor<3x65xf32>
train.state constant @rope.frequencies : tensor<65xf32> = dense<0.3> : tensor<65xf32>
train.state constant @two : tensor<1xf32> = dense<2.0> : tensor<1xf32>
func.func @main(%x: tensor<2x3xf32> {mpt.name = "x"}, %p: tensor<2x65xf32> {mpt.name = "p"}) -> (tensor<2x65xf32> {mpt.name = "y"}) {
  %w = train.read @fc.weight : tensor<3x65xf32>
  %f = train.read @rope.frequencies : tensor<65xf32>
  %two = train.read @two : tensor<1xf32>
  %h = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", version = 17 : i64}> : (tensor<2x3xf32>, tensor<3x65xf32>) -> tensor<2x65xf32>
  %a = "onnx.node"(%p, %f) <{attrs = {}, domain = "", op_type = "Mul", version = 17 : i64}> : (tensor<2x65xf32>, tensor<65xf32>) -> tensor<2x65xf32>
  %s = "onnx.node"(%a) <{attrs = {}, domain = "", op_type = "Sin", version = 17 : i64}> : (tensor<2x65xf32>) -> tensor<2x65xf32>
  %t = "onnx.node"(%s, %two) <{attrs = {}, domain = "", op_type = "Pow", version = 17 : i64}> : (tensor<2x65xf32>, tensor<1xf32>) -> tensor<2x65xf32>
  %y = "onnx.node"(%h, %t) <{attrs = {}, domain = "", op_type = "Mul", version = 17 : i64}> : (tensor<2x65xf32>, tensor<2x65xf32>) -> tensor<2x65xf32>
  return %y : tensor<2x65xf32>
}
