// RUN: mpt-opt %s --precision-assign='policy=fp8-current rules="where first -> narrow"' --precision-insert-casts --precision-quantize | FileCheck %s
// The GEMM reads 8-bit operands; its sum is FP32 and loses both scales.
// CHECK: %[[A:.*]] = train.tensor_scale
// CHECK: %[[B:.*]] = train.tensor_scale
// CHECK: mpt.matmul {{.*}} : (tensor<8x4xf8E4M3FN>, tensor<4x2xf8E4M3FN>) -> tensor<8x2xf32>
// CHECK-DAG: mpt.reciprocal %[[A]]
// CHECK-DAG: mpt.reciprocal %[[B]]
module {
  train.state parameter @w : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
  func.func @f(%x: tensor<8x4xf32>) -> tensor<8x2xf32> {
    %w = train.read @w : tensor<4x2xf32>
    %0 = mpt.matmul %x, %w : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
    return %0 : tensor<8x2xf32>
  }
}
