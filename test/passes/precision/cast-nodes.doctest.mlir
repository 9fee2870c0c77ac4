// RUN: mpt-opt %s --precision-assign-nodes=policy=amp-f16 --precision-cast-nodes | FileCheck %s
// RUN: not mpt-opt %s --precision-cast-nodes 2>&1 | FileCheck %s --check-prefix=NONE
// CHECK: op_type = "Cast", output_names = ["x_float16"]
// CHECK: op_type = "MatMul", output_names = ["y_float16"]{{.*}} -> tensor<8x8xf16>
// CHECK: op_type = "Cast", output_names = ["y"]{{.*}} -> tensor<8x8xf32>
// NONE: expected the decisions of precision-assign-nodes, got none: run it first
func.func @main(%x: tensor<8x8xf32> {mpt.name = "x"}) -> (tensor<8x8xf32> {mpt.name = "y"}) {
  %0 = "onnx.node"(%x, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["y"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
