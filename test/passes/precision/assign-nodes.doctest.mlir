// RUN: mpt-opt %s --precision-assign-nodes=policy=amp-f16 | FileCheck %s
// CHECK: op_type = "MatMul"{{.*}}operands = [f16, f16], results = [f16], rule = "class contraction -> narrow"
// CHECK: op_type = "Exp"{{.*}}operands = [f32], results = [f32], rule = "class range-expanding -> wide"
func.func @main(%x: tensor<8x8xf32> {mpt.name = "x"}) -> (tensor<8x8xf32> {mpt.name = "y"}) {
  %0 = "onnx.node"(%x, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["a"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.node"(%0) <{attrs = {}, domain = "", op_type = "Exp", output_names = ["y"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
