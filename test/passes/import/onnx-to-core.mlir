// RUN: mpt-opt --import-onnx-to-core --split-input-file %s | FileCheck %s

// CHECK: train.state {{ *}}parameter @w
// A state that nothing reads goes, and so does a node that nothing uses.
// CHECK-NOT: @unused
// CHECK-LABEL: func.func @forward
// CHECK-SAME: {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"})
// CHECK-NEXT: %[[W:.*]] = train.read @w
// CHECK-NEXT: %[[P:.*]] = mpt.matmul %{{.*}}, %[[W]] {transpose_b = true}
// CHECK-NEXT: %[[R:.*]] = mpt.relu %[[P]]
// CHECK-NEXT: return %[[R]]
module {
  train.state parameter @w : tensor<4x3xf32> = dense<1.0> : tensor<4x3xf32>
  train.state constant @unused : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  func.func @main(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"}) {
    %w = train.read @w : tensor<4x3xf32>
    %0 = "onnx.node"(%x, %w) <{attrs = {transB = 1 : i64}, domain = "", op_type = "Gemm", version = 17 : i64}> : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
    %1 = "onnx.node"(%0) <{attrs = {}, domain = "", op_type = "Relu", version = 17 : i64}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %2 = "onnx.node"(%1) <{attrs = {}, domain = "", op_type = "Neg", version = 17 : i64}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
}
