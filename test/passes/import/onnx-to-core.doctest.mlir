// RUN: mpt-opt %s --import-onnx-to-core | FileCheck %s
// CHECK-LABEL: func.func @forward(%arg0: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"})
// CHECK: %[[W:.*]] = train.read @w
// CHECK: mpt.matmul %arg0, %[[W]] {transpose_b = true} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
train.state parameter @w : tensor<4x3xf32> = dense<1.0> : tensor<4x3xf32>
func.func @main(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"}) {
  %w = train.read @w : tensor<4x3xf32>
  %y = "onnx.node"(%x, %w) <{attrs = {transB = 1 : i64}, domain = "", op_type = "Gemm", version = 17 : i64}> : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
