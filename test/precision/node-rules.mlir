// RUN: mpt-opt %s --precision-assign-nodes="policy=amp-f16 keep-narrow=.*" -split-input-file | FileCheck %s
// RUN: mpt-opt %s --precision-assign-nodes=policy=amp-f16 -split-input-file | FileCheck %s --check-prefix=RULES

// AMSGrad with its epsilon under the root and a scaled square: no rule of a policy narrows the running sum of squares, its
// root, and the division, wherever else a policy may go.
// CHECK-LABEL: func.func @main
// RULES-LABEL: func.func @main
func.func @main(%g: tensor<8xf32> {mpt.name = "g"}, %v: tensor<8xf32> {mpt.name = "v"}, %m: tensor<8xf32> {mpt.name = "m"}, %top: tensor<8xf32> {mpt.name = "top"})
    -> (tensor<8xf32> {mpt.name = "v_next"}, tensor<8xf32> {mpt.name = "step"}) {
  %b = onnx.initializer "b" {value = dense<0.999> : tensor<f32>} : tensor<f32>
  %c = onnx.initializer "c" {value = dense<0.001> : tensor<f32>} : tensor<f32>
  %eps = onnx.initializer "eps" {value = dense<1.0e-8> : tensor<f32>} : tensor<f32>
  // CHECK: op_type = "Mul", output_names = ["old"]{{.*}}results = [f32], rule = "optimizer.second_moment -> wide{{.*}}(keep-narrow {{.*}} does not apply)"
  %0 = "onnx.node"(%v, %b) <{attrs = {}, domain = "", op_type = "Mul", output_names = ["old"], version = 17 : i64}> : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32> loc("old")
  // CHECK: op_type = "Mul", output_names = ["scaled"]{{.*}}results = [f16]
  %1 = "onnx.node"(%g, %c) <{attrs = {}, domain = "", op_type = "Mul", output_names = ["scaled"], version = 17 : i64}> : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32> loc("scaled")
  // CHECK: output_names = ["square"]{{.*}}results = [f32], rule = "optimizer.second_moment
  %2 = "onnx.node"(%1, %g) <{attrs = {}, domain = "", op_type = "Mul", output_names = ["square"], version = 17 : i64}> : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("square")
  // CHECK: output_names = ["v_next"]{{.*}}results = [f32], rule = "optimizer.second_moment
  %3 = "onnx.node"(%0, %2) <{attrs = {}, domain = "", op_type = "Add", output_names = ["v_next"], version = 17 : i64}> : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("v_next")
  // CHECK: output_names = ["largest"]{{.*}}results = [f32], rule = "optimizer.second_moment
  %4 = "onnx.node"(%top, %3) <{attrs = {}, domain = "", op_type = "Max", output_names = ["largest"], version = 17 : i64}> : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("largest")
  // CHECK: output_names = ["safe"]{{.*}}results = [f32], rule = "optimizer.epsilon
  %5 = "onnx.node"(%4, %eps) <{attrs = {}, domain = "", op_type = "Add", output_names = ["safe"], version = 17 : i64}> : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32> loc("safe")
  // CHECK: output_names = ["root"]{{.*}}results = [f32], rule = "optimizer.second_moment
  %6 = "onnx.node"(%5) <{attrs = {}, domain = "", op_type = "Sqrt", output_names = ["root"], version = 17 : i64}> : (tensor<8xf32>) -> tensor<8xf32> loc("root")
  // CHECK: output_names = ["step"]{{.*}}results = [f32], rule = "optimizer.epsilon
  %7 = "onnx.node"(%m, %6) <{attrs = {}, domain = "", op_type = "Div", output_names = ["step"], version = 17 : i64}> : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("step")
  return %3, %7 : tensor<8xf32>, tensor<8xf32>
}

// -----

// A root over anything else is no optimizer: here the policy's rules hold.
// CHECK-LABEL: func.func @main
// RULES-LABEL: func.func @main
func.func @main(%x: tensor<8x8xf32> {mpt.name = "x"}) -> (tensor<8x8xf32> {mpt.name = "y"}) {
  %eps = onnx.initializer "eps" {value = dense<0.125> : tensor<f32>} : tensor<f32>
  %0 = "onnx.node"(%x, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["product"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK: op_type = "Abs"{{.*}}results = [f16]
  // RULES: op_type = "Abs"{{.*}}results = [f16]
  %1 = "onnx.node"(%0) <{attrs = {}, domain = "", op_type = "Abs", output_names = ["size"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK: op_type = "Add"{{.*}}results = [f16]
  // RULES: op_type = "Add"{{.*}}results = [f16]
  %2 = "onnx.node"(%1, %eps) <{attrs = {}, domain = "", op_type = "Add", output_names = ["safe"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  // CHECK: op_type = "Sqrt"{{.*}}results = [f16]
  // RULES: op_type = "Sqrt"{{.*}}results = [f16]
  %3 = "onnx.node"(%2) <{attrs = {}, domain = "", op_type = "Sqrt", output_names = ["root"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = "onnx.node"(%3, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["next"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // The tail behind the last GEMM stays wide.
  // RULES: op_type = "Sigmoid"{{.*}}results = [f32]
  %5 = "onnx.node"(%4) <{attrs = {}, domain = "", op_type = "Sigmoid", output_names = ["gate"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // RULES: op_type = "Exp"{{.*}}results = [f32]
  %6 = "onnx.node"(%5) <{attrs = {}, domain = "", op_type = "Exp", output_names = ["y"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %6 : tensor<8x8xf32>
}

// -----

// Loop-carried values may have any range, inside and behind it.
// RULES-LABEL: func.func @main
func.func @main(%n: tensor<i64> {mpt.name = "n"}, %x: tensor<8x8xf32> {mpt.name = "x"}) -> (tensor<8x8xf32> {mpt.name = "y"}) {
  %true = "onnx.node"() <{attrs = {value = dense<true> : tensor<i1>}, domain = "", op_type = "Constant", output_names = ["true"], version = 17 : i64}> : () -> tensor<i1>
  %0 = "onnx.node"(%n, %true, %x) <{attrs = {}, domain = "", op_type = "Loop", output_names = ["l"], region_names = ["body"], version = 17 : i64}> ({
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %s: tensor<8x8xf32>):
    // RULES: output_names = ["p"]{{.*}}results = [f16], rule = "class contraction
    %1 = "onnx.node"(%s, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["p"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    // RULES: output_names = ["q"]{{.*}}results = [f32], rule = "class neutral -> follow: range of a wide op flows in"
    %2 = "onnx.node"(%1, %s) <{attrs = {}, domain = "", op_type = "Add", output_names = ["q"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    onnx.yield %c, %2 : tensor<i1>, tensor<8x8xf32>
  }) : (tensor<i64>, tensor<i1>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // RULES: output_names = ["t"]{{.*}}results = [f32], rule = "class neutral -> follow: range of a wide op flows in"
  %3 = "onnx.node"(%0) <{attrs = {}, domain = "", op_type = "Tanh", output_names = ["t"], version = 17 : i64}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = "onnx.node"(%3, %x) <{attrs = {}, domain = "", op_type = "MatMul", output_names = ["y"], version = 17 : i64}> : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}
