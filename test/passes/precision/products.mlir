// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-hybrid rules="where first -> narrow" rules="where last -> narrow"' --precision-products --precision-widen-reductions --precision-verify | FileCheck %s
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-current' --precision-products | FileCheck %s --check-prefix=CURRENT
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=fp8-e5m2 --precision-products --precision-widen-reductions --precision-verify | FileCheck %s --check-prefix=E5M2
// RUN: mpt-opt %s --precision-assign='policy=fp8-current rules="where first -> narrow"' --precision-products | FileCheck %s --check-prefix=TWICE
// RUN: not mpt-opt %S/Inputs/three.mlir --precision-assign=policy=amp-f16 --precision-products 2>&1 | FileCheck %s --check-prefix=SIXTEEN
// RUN: not mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-hybrid keep-f32=second' --precision-products 2>&1 | FileCheck %s --check-prefix=NONE

// SIXTEEN: expected a policy with 8-bit operands of GEMMs, whose products can be measured, got amp-f16
// NONE: expected GEMMs with 8-bit operands, found none: policy fp8-hybrid keeps all of this model's in 'bf16'

// The step's eight products; the evaluation's are three of them, and a weight's gradient is no product of two weights. The
// conversions of its nine tensors are seven distinct ones.
// CHECK: function = "conversion_6"}]
// CHECK-NOT: function = "conversion_7"
// CHECK: function_16 = "product_7_16"
// CHECK-NOT: function_16 = "product_8_16"
// CHECK-SAME: recipe = "bf16, f8E4M3FN, f8E5M2, delayed scales"
// CHECK-NOT: @step
// CHECK: train.state statistic @mpt.tensor_scales : tensor<1xf32> = dense<1.0
// CHECK-NOT: train.state
// CHECK-LABEL: func.func @product_0_16(%arg0: tensor<8x4xbf16> {mpt.name = "operand_0"}, %arg1: tensor<4x16xbf16> {mpt.name = "operand_1"})
// CHECK-NOT: mpt.cast
// CHECK: mpt.matmul %arg0, %arg1 {numerics = #mpt.numerics<in = bf16, acc = f32, out = [[OUT:.*]]>} : (tensor<8x4xbf16>, tensor<4x16xbf16>) -> tensor<8x16x[[OUT]]>
// CHECK-LABEL: func.func @product_0_8(%arg0: tensor<8x4xbf16> {mpt.name = "operand_0"}, %arg1: tensor<4x16xbf16> {mpt.name = "operand_1"})
// CHECK-SAME: mpt.name = "amax_0"
// CHECK-SAME: mpt.name = "amax_1"
// CHECK-SAME: mpt.name = "result_0"
// CHECK: train.read @mpt.tensor_scales
// CHECK: mpt.matmul %{{.*}} : (tensor<8x4xf8E4M3FN>, tensor<4x16xf8E4M3FN>) -> tensor<8x16xf32>
// Backward, an operand is a gradient.
// CHECK: func.func @product_{{[0-9]}}_8
// CHECK: (tensor<{{.*}}xf8E4M3FN>, tensor<{{.*}}xf8E5M2>) -> tensor<{{.*}}xf32>

// The middle layer alone: three products, whose scale is computed from the operand at hand.
// CURRENT: function_16 = "product_2_16"
// CURRENT-NOT: product_3_16
// CURRENT-SAME: current scales
// CURRENT-NOT: train.state
// CURRENT-LABEL: func.func @product_0_8
// CURRENT: train.tensor_scale
// CURRENT-NOT: mpt.name = "amax

// No scales: the product leaves its own type. Gradients round stochastically.
// E5M2: stochastic gradients
// E5M2: train.state rng @mpt.rounding
// E5M2-LABEL: func.func @product_0_8
// E5M2: (tensor<8x16xf8E5M2>, tensor<16x16xf8E5M2>) -> tensor<8x16xf16>
// E5M2-NOT: mpt.reciprocal
// E5M2: rounding = #mpt<rounding stochastic>

// One value on both sides is converted once, and so it is one argument.
// TWICE-LABEL: func.func @product_0_8(%arg0: tensor<8x8xbf16> {mpt.name = "operand_0"}) ->
// TWICE-COUNT-1: to tensor<8x8xf8E4M3FN>
// TWICE: mpt.matmul [[X:%[0-9]+]], [[X]] : (tensor<8x8xf8E4M3FN>, tensor<8x8xf8E4M3FN>) -> tensor<8x8xf32>
// TWICE-LABEL: func.func @conversion_0
module {
  train.state parameter @w : tensor<8x8xf32> = dense<0.25> : tensor<8x8xf32>
  func.func @square() -> tensor<8x8xf32> {
    %w = train.read @w : tensor<8x8xf32>
    %0 = mpt.matmul %w, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
