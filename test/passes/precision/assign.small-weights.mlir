// A layer scale of 1e-6 would keep four bits of eleven among f16's subnormal numbers: its product stays wide, and the residual
// addition behind it does not. So does a GEMM all of whose weights are as small.
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s
// RUN: mpt-opt %s --precision-assign=policy=amp-bf16 | FileCheck %s --check-prefix=BF16

// CHECK: mpt.matmul {{.*}}operands = [f16, f16]
// CHECK: mpt.mul {{.*}}operands = [f32, f32], {{.*}}rule = "factors may take what flows in below the narrow type's normal numbers"
// CHECK: mpt.add {{.*}}rule = "class neutral -> follow
// CHECK: mpt.matmul {{.*}}operands = [f32, f32], {{.*}}rule = "factors may take
// BF16: mpt.matmul {{.*}}operands = [bf16, bf16]
// BF16-NOT: factors may take
train.state parameter @plain : tensor<8x8xf32> = dense<0.5> : tensor<8x8xf32>
train.state parameter @scale : tensor<3x8xf32> = dense<1.0e-06> : tensor<3x8xf32>
train.state parameter @tiny : tensor<8x8xf32> = dense<2.0e-06> : tensor<8x8xf32>
func.func @forward(%x: tensor<3x8xf32> {mpt.name = "x"}) -> (tensor<3x8xf32> {mpt.name = "y"}) {
  %w = train.read @plain : tensor<8x8xf32>
  %s = train.read @scale : tensor<3x8xf32>
  %t = train.read @tiny : tensor<8x8xf32>
  %0 = mpt.matmul %x, %w : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  %1 = mpt.matmul %0, %w : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  %2 = mpt.mul %1, %s : tensor<3x8xf32>
  %3 = mpt.add %0, %2 : tensor<3x8xf32>
  %4 = mpt.matmul %3, %t : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  train.write @plain, %w : tensor<8x8xf32>
  train.write @scale, %s : tensor<3x8xf32>
  train.write @tiny, %t : tensor<8x8xf32>
  return %4 : tensor<3x8xf32>
}
