// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=amp-f16 | FileCheck %s --check-prefix=MLP
// RUN: mpt-opt %S/Inputs/mlp.mlir '--pass-pipeline=builtin.module(precision-assign{policy=amp-f16 keep-f32=fc2})' | FileCheck %s --check-prefix=KEEP
// RUN: mpt-opt %S/Inputs/mlp.mlir '--pass-pipeline=builtin.module(precision-assign{policy=amp-f16 keep-f32=.* keep-narrow=fc1})' | FileCheck %s --check-prefix=BOTH
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=fp32 | FileCheck %s --check-prefix=FP32
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=%S/Inputs/wide-gradients.mlir | FileCheck %s --check-prefix=WIDE
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s --check-prefix=RULES
// RUN: mpt-opt %s --precision-assign=policy=amp-bf16 | FileCheck %s --check-prefix=BF16
// RUN: not mpt-opt %s --precision-assign=policy=half 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mpt-opt %s --precision-assign=policy=%S/none.mlir 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not mpt-opt %S/Inputs/mlp.mlir '--pass-pipeline=builtin.module(precision-assign{policy=amp-f16 keep-f32=fc9 check-rules})' 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not mpt-opt %s '--precision-assign=policy=amp-f16 keep-f32=a(' 2>&1 | FileCheck %s --check-prefix=REGEX

// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=%S/Inputs/operand-rules.mlir | FileCheck %s --check-prefix=OPERAND
// RUN: not mpt-opt %s --precision-assign=policy=%S/Inputs/misspelt.mlir 2>&1 | FileCheck %s --check-prefix=MISSPELT
// RUN: not mpt-opt %s --precision-assign=policy=auto 2>&1 | FileCheck %s --check-prefix=AUTO

// A rule on one operand decides for all operands that share its type; a rule on a node beats one on its op.
// OPERAND: mpt.matmul {{.*}}operands = [f16, f16]{{.*}}rule = "policy.node \22fc1\22 operand 0 -> narrow"
// OPERAND: mpt.matmul {{.*}}operands = [f32, f32]{{.*}}rule = "policy.node \22fc2\22 operand 1 -> wide"
// MISSPELT: misspelt.mlir:3:3: error: expected the name of a core op (mpt.tanh) or of an ONNX operator with a schema (onnx.Tanh), got "mpt.mat_mul": did you mean "mpt.matmul"?
// AUTO: expected measured ranges for policy auto, got none: measure them with mpt-run --calibrate and give the file with --ranges

// WIDE: mpt.softmax_cross_entropy_backward
// WIDE: mpt.matmul {{.*}}operands = [f16, f16], results = [f32]
// WIDE-NOT: waits

// MLP: module attributes {{.*}}mpt.policy = {accumulate = f32, {{.*}}loss_scaling = {{.*}}mode = "dynamic"{{.*}}name = "amp-f16", {{.*}}storage = f16}
// MLP: train.state parameter @fc1.weight {{.*}}results = [f16]
// MLP: mpt.matmul {{.*}}operands = [f16, f16], results = [f16], rule = "class contraction -> narrow; fewest cast bytes"
// MLP: mpt.softmax_cross_entropy {{.*}}operands = [unit, unit], results = [f32, f32, f32], rule = "class pinned -> wide"
// MLP: mpt.constant {{.*}}results = [f32], rule = "gradient seed"
// MLP: mpt.softmax_cross_entropy_backward {{.*}}results = [f16]
// Weights' gradients wait for the finite check in the narrow type, unless the policy says f32.
// MLP: mpt.matmul {{.*}}operands = [f16, f16], results = [f16], rule = "class contraction -> narrow; the gradient waits for its update in the narrow type"
// MLP: mpt.reduce sum {{.*}}operands = [unit], results = [f32], rule = "class reduction -> wide
// MLP: train.gradient {{.*}}rule = "parameter gradients are f32"
// MLP: mpt.sgd {{.*}}operands = [f32, f32, f32, unit, f32]

// KEEP: train.state parameter @fc1.weight {{.*}}results = [f16]
// KEEP: train.state parameter @fc2.weight {{.*}}results = [f32]
// NOTHING: error: expected a rule about nodes of the model, got 'keep-f32 "fc9" -> wide', which matches none; near it: 'fc1', 'fc2'
// KEEP: mpt.matmul {{.*}}operands = [f32, f32], results = [f32], rule = "keep-f32 \22fc2\22 -> wide"
// BOTH: mpt.matmul {{.*}}operands = [f16, f16], results = [f16], rule = "keep-narrow \22fc1\22 -> narrow"
// BOTH: mpt.matmul {{.*}}operands = [f32, f32], results = [f32], rule = "keep-f32 \22.*\22 -> wide"
// FP32: name = "fp32"
// FP32-NOT: mpt.precision
// UNKNOWN: expected policy {{.*}}, amp-f16, {{.*}}, auto or the path of a policy file
// MISSING: cannot find policy file {{.*}}none.mlir
// REGEX: expected a regular expression, got "a("

// exp is wide in f16 and bf16, and so are in f16 the ops that its range flows into, contractions too: nothing bounds the input.
// RULES-LABEL: func.func @ranges
// RULES: mpt.matmul {{.*}}results = [f32]
// RULES: mpt.exp {{.*}}operands = [f32], results = [f32], rule = "class range-expanding -> wide"
// RULES: mpt.mul {{.*}}results = [f32], rule = "its powers may leave the narrow type's range"
// RULES: mpt.transpose {{.*}}results = [f32]
// RULES: mpt.matmul {{.*}}operands = [f32, f32], results = [f32], rule = "what flows in may leave the narrow type's range"
// RULES: mpt.tanh {{.*}}results = [f32]
// BF16-LABEL: func.func @ranges
// BF16: mpt.exp {{.*}}operands = [f32]
// BF16: mpt.matmul {{.*}}operands = [bf16, bf16]
// BF16: mpt.tanh {{.*}}results = [bf16]
func.func @ranges(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = mpt.matmul %a, %a : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = mpt.exp %0 : tensor<64x64xf32>
  %2 = mpt.mul %1, %1 : tensor<64x64xf32>
  %3 = mpt.transpose %2 {permutation = array<i64: 1, 0>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %4 = mpt.matmul %3, %3 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %5 = mpt.tanh %4 : tensor<64x64xf32>
  %6 = mpt.matmul %5, %5 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %6 : tensor<64x64xf32>
}

// Casts move across layout ops to the side with fewer bytes: before the broadcast, behind the slice.
// RULES-LABEL: func.func @cheaper_side
// RULES: mpt.broadcast {{.*}}operands = [f16], results = [f16]
// RULES: mpt.slice {{.*}}operands = [f32], results = [f32]
func.func @cheaper_side(%a: tensor<64xf32>, %b: tensor<4096x64xf32>) -> tensor<64x64xf32> {
  %0 = mpt.broadcast %a {dims = array<i64: 1>} : (tensor<64xf32>) -> tensor<64x64xf32>
  %1 = mpt.slice %b {starts = array<i64: 0, 0>, sizes = array<i64: 64, 64>, strides = array<i64: 1, 1>} : (tensor<4096x64xf32>) -> tensor<64x64xf32>
  %2 = mpt.matmul %0, %1 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}

// Statistics are wide operands and results; elementwise work on raw inputs, before anything narrow, stays wide; f64 is never touched.
// RULES-LABEL: func.func @pins
// RULES: mpt.sub {{.*}}operands = [f32, f32], results = [f32], rule = "arithmetic on raw inputs"
// RULES: mpt.conv {{.*}}operands = [f16, f16], results = [f16]
// RULES: mpt.batch_norm {{.*}}operands = [unit, f32, f32], results = [f16, f32, f32]
// RULES: mpt.add {{.*}} : tensor<4xf64>
func.func @pins(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %c: tensor<4xf32>, %v: tensor<4x4x1x1xf32>, %d: tensor<4xf64>) -> (tensor<2x4x6x6xf32>, tensor<4xf64>) {
  %0 = mpt.sub %x, %x : tensor<2x3x8x8xf32>
  %1 = mpt.conv %0, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1} : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>
  %2, %mean, %variance = mpt.batch_norm %1, %c, %c {epsilon = 1.0e-5} : (tensor<2x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>)
  %3 = mpt.relu %2 : tensor<2x4x6x6xf32>
  %4 = mpt.conv %3, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1} : (tensor<2x4x6x6xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x6x6xf32>
  %5 = mpt.add %d, %d : tensor<4xf64>
  return %4, %5 : tensor<2x4x6x6xf32>, tensor<4xf64>
}
