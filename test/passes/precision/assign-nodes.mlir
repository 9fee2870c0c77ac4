// RUN: mpt-opt %s --precision-assign-nodes=policy=amp-f16 -split-input-file | FileCheck %s
// RUN: mpt-opt %s --precision-assign-nodes="policy=amp-bf16 keep-f32=product" -split-input-file | FileCheck %s --check-prefix=KEEP
// RUN: not mpt-opt %s --precision-assign-nodes="policy=amp-bf16 keep-f32=produkt check-rules" -split-input-file 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: expected a rule about nodes of the model, got 'keep-f32 "produkt" -> wide', which matches none; near it: 'product'

// A GEMM is narrow, softmax wide, and ops between two GEMMs without range go narrow with them.
// CHECK-LABEL: func.func @main
// KEEP-LABEL: func.func @main
// KEEP: op_type = "MatMul"{{.*}}operands = [f32, f32]{{.*}}rule = "keep-f32 \22product\22 -> wide"
func.func @main(%x: tensor<4x8xf32> {mpt.name = "x"}) -> (tensor<4x8xf32> {mpt.name = "y"}) {
  %w = onnx.initializer "w" {value = dense<1.0> : tensor<8x8xf32>} : tensor<8x8xf32>
  // CHECK: op_type = "MatMul"{{.*}}mpt.precision = #mpt.precision<operands = [f16, f16], results = [f16], rule = "class contraction -> narrow">
  %0 = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["a"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("product")
  // CHECK: op_type = "Relu"{{.*}}results = [f16], rule = "class movement -> follow; fewest cast bytes"
  %1 = "onnx.node"(%0) <{attrs = {}, domain = "", op_type = "Relu", output_names = ["b"], version = 17 : i64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: op_type = "MatMul"{{.*}}results = [f16]
  %2 = "onnx.node"(%1, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["c"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  // CHECK: op_type = "Softmax"{{.*}}results = [f32], rule = "class range-expanding -> wide"
  %3 = "onnx.node"(%2) <{attrs = {axis = -1 : i64}, domain = "", op_type = "Softmax", output_names = ["d"], version = 17 : i64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: op_type = "MatMul"{{.*}}results = [f16]
  %4 = "onnx.node"(%3, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["e"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  // CHECK: op_type = "Tanh"{{.*}}results = [f32], rule = "class neutral -> follow: only results of the graph depend on it"
  %5 = "onnx.node"(%4) <{attrs = {}, domain = "", op_type = "Tanh", output_names = ["y"], version = 17 : i64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// -----

// Schemas are hard rules: Resize's scales are float whatever happens, a custom op keeps its types, Conv had no bf16
// before opset 22. A constant that f16 cannot hold keeps its user wide.
// CHECK-LABEL: func.func @main
// KEEP-LABEL: func.func @main
func.func @main(%x: tensor<1x2x4x4xf32> {mpt.name = "x"}) -> (tensor<1x2x8x8xf32> {mpt.name = "y"}) {
  %w = onnx.initializer "w" {value = dense<1.0> : tensor<2x2x1x1xf32>} : tensor<2x2x1x1xf32>
  %scales = onnx.initializer "scales" {value = dense<[1.0, 1.0, 2.0, 2.0]> : tensor<4xf32>} : tensor<4xf32>
  %tiny = onnx.initializer "tiny" {value = dense<1.0e-12> : tensor<f32>} : tensor<f32>
  %none = onnx.absent
  // CHECK: op_type = "Conv"{{.*}}results = [f16]
  // KEEP: op_type = "Conv"{{.*}}results = [f32], rule = "the operator takes no narrow type here"
  %0 = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "Conv", output_names = ["a"], version = 17 : i64}> : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  // CHECK: op_type = "Add"{{.*}}results = [f32], rule = "class neutral -> follow: a constant is outside the narrow type's range"
  %1 = "onnx.node"(%0, %tiny) <{attrs = {}, domain = "", op_type = "Add", output_names = ["b"], version = 17 : i64}> : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
  // CHECK: op_type = "Conv"{{.*}}results = [f16]
  %2 = "onnx.node"(%1, %w) <{attrs = {}, domain = "", op_type = "Conv", output_names = ["c"], version = 17 : i64}> : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  // CHECK: op_type = "Resize"{{.*}}operands = [f16, unit, f32], results = [f16]
  %3 = "onnx.node"(%2, %none, %scales) <{attrs = {}, domain = "", op_type = "Resize", output_names = ["d"], version = 17 : i64}> : (tensor<1x2x4x4xf32>, none, tensor<4xf32>) -> tensor<1x2x8x8xf32>
  // CHECK: op_type = "Conv"{{.*}}results = [f16]
  %4 = "onnx.node"(%3, %w) <{attrs = {}, domain = "", op_type = "Conv", output_names = ["e"], version = 17 : i64}> : (tensor<1x2x8x8xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x8x8xf32>
  // CHECK: op_type = "Unknown"{{.*}}results = [f32], rule = "the operator takes no narrow type here"
  %5 = "onnx.node"(%4) <{attrs = {}, domain = "custom", op_type = "Unknown", output_names = ["y"], version = 1 : i64}> : (tensor<1x2x8x8xf32>) -> tensor<1x2x8x8xf32>
  return %5 : tensor<1x2x8x8xf32>
}

// -----

// Floats that become indices are computed wide, up to the GEMM that they come from.
// CHECK-LABEL: func.func @main
// CHECK: op_type = "MatMul"{{.*}}results = [f32], rule = "class contraction -> narrow: an index is made of it"
// CHECK: op_type = "Mul"{{.*}}results = [f32], rule = "class neutral -> follow: an index is made of it"
// CHECK: op_type = "Cast"
func.func @main(%x: tensor<4x8xf32> {mpt.name = "x"}) -> (tensor<4x8xi64> {mpt.name = "y"}) {
  %w = onnx.initializer "w" {value = dense<1.0> : tensor<8x8xf32>} : tensor<8x8xf32>
  %scale = onnx.initializer "scale" {value = dense<3999.0> : tensor<f32>} : tensor<f32>
  %0 = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["a"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = "onnx.node"(%0, %scale) <{attrs = {}, domain = "", op_type = "Mul", output_names = ["b"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "onnx.node"(%1) <{attrs = {to = 7 : i64}, domain = "", op_type = "Cast", output_names = ["y"], version = 17 : i64}> : (tensor<4x8xf32>) -> tensor<4x8xi64>
  return %2 : tensor<4x8xi64>
}
