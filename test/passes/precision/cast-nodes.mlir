// RUN: mpt-opt %s --precision-assign-nodes=policy=amp-f16 --precision-cast-nodes -split-input-file | FileCheck %s
// RUN: not mpt-opt %s --precision-cast-nodes -split-input-file 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: expected the decisions of precision-assign-nodes, got none: run it first

// One cast of the input for both GEMMs; the initializer is converted in place, its elements when they are written;
// the result keeps its name and its type.
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32> {mpt.name = "x"}) -> (tensor<4x8xf32> {mpt.name = "y"}) {
  // CHECK: onnx.initializer "w" {value = dense<1.000000e+00> : tensor<8x8xf16>} : tensor<8x8xf16>
  %w = onnx.initializer "w" {value = dense<1.0> : tensor<8x8xf32>} : tensor<8x8xf32>
  // CHECK: %[[X:.*]] = "onnx.node"(%{{.*}}) <{attrs = {to = 10 : i64}, domain = "", op_type = "Cast", output_names = ["x_float16"]
  // CHECK-NOT: op_type = "Cast"
  // CHECK: "onnx.node"(%[[X]], {{.*}}op_type = "MatMul"
  %0 = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["a"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  // CHECK-NOT: op_type = "Cast"
  // CHECK: "onnx.node"(%[[X]], {{.*}}op_type = "MatMul"
  %1 = "onnx.node"(%x, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["b"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  // CHECK: op_type = "MatMul", output_names = ["y_float16"]
  %2 = "onnx.node"(%0, %1) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["y"], version = 17 : i64}> : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: %[[Y:.*]] = "onnx.node"{{.*}}attrs = {to = 1 : i64}{{.*}}output_names = ["y"]
  // CHECK: return %[[Y]]
  return %2 : tensor<4x8xf32>
}

// -----

// A subgraph is rewritten where it stands: its boundary stays f32, and an outer value is cast outside.
// CHECK-LABEL: func.func @main
func.func @main(%c: tensor<i1> {mpt.name = "c"}, %x: tensor<8x8xf32> {mpt.name = "x"}) -> (tensor<8x8xf32> {mpt.name = "y"}) {
  // CHECK: output_names = ["x_float16"]
  // CHECK: op_type = "If"
  %0 = "onnx.node"(%c) <{attrs = {}, domain = "", op_type = "If", output_names = ["y"], region_names = ["then_branch", "else_branch"], version = 17 : i64}> ({
    // CHECK: op_type = "MatMul", output_names = ["t_float16"]{{.*}}tensor<8x8xf16>
    %1 = "onnx.node"(%x, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["t"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    // CHECK: op_type = "Cast", output_names = ["t"]
    // CHECK: onnx.yield {{.*}} : tensor<8x8xf32>
    onnx.yield %1 : tensor<8x8xf32>
  }, {
    %1 = "onnx.node"(%x) <{attrs = {}, domain = "", op_type = "Relu", output_names = ["e"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
    onnx.yield %1 : tensor<8x8xf32>
  }) : (tensor<i1>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
