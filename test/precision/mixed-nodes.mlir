// RUN: mpt-opt %s --precision-assign-nodes=policy=amp-f16 --precision-cast-nodes -split-input-file | FileCheck %s
// RUN: mpt-opt %s --precision-assign-nodes=policy=fp32 --precision-cast-nodes -split-input-file | FileCheck %s --check-prefix=FP32

// A model that is mixed already. A value that it widened is read narrow where narrow is wanted, by any number of readers, and the
// pair of casts goes away; FP32 as the policy leaves every cast.
// CHECK-LABEL: func.func @main
// CHECK-NOT: op_type = "Cast"
// CHECK: %[[H:.*]] = "onnx.node"(%{{.*}}op_type = "MatMul", output_names = ["h"]
// CHECK-NOT: op_type = "Cast"
// CHECK: "onnx.node"(%[[H]], {{.*}}op_type = "MatMul", output_names = ["i"]
// CHECK-NOT: op_type = "Cast"
// CHECK: "onnx.node"(%[[H]], {{.*}}op_type = "MatMul", output_names = ["j"]
// FP32-LABEL: func.func @main
// FP32-COUNT-3: op_type = "Cast"
func.func @main(%x: tensor<8x8xf16> {mpt.name = "x"}) -> (tensor<8x8xf16> {mpt.name = "i"}, tensor<8x8xf16> {mpt.name = "j"}) {
  %h = "onnx.node"(%x, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["h"], version = 17 : i64}> : (tensor<8x8xf16>, tensor<8x8xf16>) -> tensor<8x8xf16>
  %w = "onnx.node"(%h) <{attrs = {to = 1 : i64}, domain = "", op_type = "Cast", output_names = ["w"], version = 17 : i64}> : (tensor<8x8xf16>) -> tensor<8x8xf32>
  %a = "onnx.node"(%w) <{attrs = {to = 10 : i64}, domain = "", op_type = "Cast", output_names = ["a"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf16>
  %b = "onnx.node"(%w) <{attrs = {to = 10 : i64}, domain = "", op_type = "Cast", output_names = ["b"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf16>
  %i = "onnx.node"(%a, %a) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["i"], version = 17 : i64}> : (tensor<8x8xf16>, tensor<8x8xf16>) -> tensor<8x8xf16>
  %j = "onnx.node"(%b, %b) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["j"], version = 17 : i64}> : (tensor<8x8xf16>, tensor<8x8xf16>) -> tensor<8x8xf16>
  return %i, %j : tensor<8x8xf16>, tensor<8x8xf16>
}

// -----

// An FP32 GEMM behind a widening reads the value before it; one narrowing of the model serves the new narrow reader too.
// CHECK-LABEL: func.func @main
// CHECK-NOT: op_type = "Cast"
// CHECK: "onnx.node"(%arg0, %arg0) {{.*}}op_type = "MatMul"
// CHECK: op_type = "Softmax"
// CHECK: %[[N:.*]] = "onnx.node"{{.*}}op_type = "Cast", output_names = ["n"]
// CHECK-NOT: op_type = "Cast"
// CHECK: "onnx.node"(%[[N]], %[[N]]) {{.*}}op_type = "MatMul"
// CHECK-NOT: op_type = "Cast"
// CHECK: return
func.func @main(%x: tensor<8x8xf16> {mpt.name = "x"}) -> (tensor<8x8xf16> {mpt.name = "y"}, tensor<8x8xf16> {mpt.name = "n"}) {
  %w = "onnx.node"(%x) <{attrs = {to = 1 : i64}, domain = "", op_type = "Cast", output_names = ["w"], version = 17 : i64}> : (tensor<8x8xf16>) -> tensor<8x8xf32>
  %p = "onnx.node"(%w, %w) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["p"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = "onnx.node"(%p) <{attrs = {axis = -1 : i64}, domain = "", op_type = "Softmax", output_names = ["s"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %q = "onnx.node"(%s, %s) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["q"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %n = "onnx.node"(%s) <{attrs = {to = 10 : i64}, domain = "", op_type = "Cast", output_names = ["n"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf16>
  %y = "onnx.node"(%q) <{attrs = {to = 10 : i64}, domain = "", op_type = "Cast", output_names = ["y"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf16>
  return %y, %n : tensor<8x8xf16>, tensor<8x8xf16>
}

// -----

// Rounding is meaning: f32 to f16 to f32 and f32 to f16 to bf16 stay as they are.
// CHECK-LABEL: func.func @main
// CHECK: attrs = {to = 10 : i64}
// CHECK: attrs = {to = 1 : i64}
// CHECK: attrs = {to = 16 : i64}
func.func @main(%x: tensor<8xf32> {mpt.name = "x"}) -> (tensor<8xf32> {mpt.name = "y"}, tensor<8xbf16> {mpt.name = "z"}) {
  %h = "onnx.node"(%x) <{attrs = {to = 10 : i64}, domain = "", op_type = "Cast", output_names = ["h"], version = 17 : i64}> : (tensor<8xf32>) -> tensor<8xf16>
  %w = "onnx.node"(%h) <{attrs = {to = 1 : i64}, domain = "", op_type = "Cast", output_names = ["w"], version = 17 : i64}> : (tensor<8xf16>) -> tensor<8xf32>
  %y = "onnx.node"(%w) <{attrs = {}, domain = "", op_type = "Tanh", output_names = ["y"], version = 17 : i64}> : (tensor<8xf32>) -> tensor<8xf32>
  %z = "onnx.node"(%h) <{attrs = {to = 16 : i64}, domain = "", op_type = "Cast", output_names = ["z"], version = 17 : i64}> : (tensor<8xf16>) -> tensor<8xbf16>
  return %y, %z : tensor<8xf32>, tensor<8xbf16>
}
