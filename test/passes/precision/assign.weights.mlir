// Weights far larger than any initialization's take GEMM results out of f16's range: the GEMM that reaches the end of the range stays
// wide, and so do its readers up to a norm. The factors of several layers multiply.
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s
// RUN: mpt-opt %s --precision-assign=policy=amp-bf16 | FileCheck %s --check-prefix=BF16

// CHECK: mpt.matmul {{.*}}operands = [f16, f16]
// CHECK: mpt.matmul {{.*}}operands = [f32, f32], {{.*}}rule = "its weights may take it out of the narrow type's range"
// CHECK: mpt.matmul {{.*}}operands = [f32, f32], {{.*}}rule = "what flows in may leave the narrow type's range"
// CHECK: mpt.softmax
// CHECK: mpt.matmul {{.*}}operands = [f16, f16]
// BF16-COUNT-4: mpt.matmul {{.*}}operands = [bf16, bf16]
train.state parameter @plain : tensor<8x8xf32> = dense<0.5> : tensor<8x8xf32>
train.state parameter @large : tensor<8x8xf32> = dense<40.0> : tensor<8x8xf32>
func.func @forward(%x: tensor<3x8xf32> {mpt.name = "x"}) -> (tensor<3x8xf32> {mpt.name = "y"}) {
  %w = train.read @large : tensor<8x8xf32>
  %p = train.read @plain : tensor<8x8xf32>
  %0 = mpt.matmul %x, %w : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  %1 = mpt.matmul %0, %w : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  %2 = mpt.matmul %1, %p : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  %3 = mpt.softmax %2 {axis = 1 : i64} : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %4 = mpt.matmul %3, %p : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  return %4 : tensor<3x8xf32>
}
