// Weights and constants that the storage type does not hold stay wide with the operations that read them, moved or not.
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s
// RUN: mpt-opt %s --precision-assign=policy=amp-bf16 | FileCheck %s --check-prefix=BF16

// CHECK-NOT: train.state parameter @big {{.*}}results = [f16]
// CHECK: train.state parameter @small {{.*}}mpt.precision = #mpt.precision<operands = [], results = [f16]
// CHECK: train.read @big {{.*}}results = [f32], rule = "'big' reaches 1e+05, beyond f16"
// CHECK: mpt.transpose {{.*}}results = [f32], rule = "'big' reaches 1e+05, beyond f16"
// CHECK: mpt.matmul {{.*}}operands = [f32, f32], results = [f32], rule = "'big' reaches 1e+05, beyond f16"
// CHECK: mpt.matmul {{.*}}operands = [f16, f16]
// CHECK: mpt.add {{.*}}rule = "'mask' reaches 3.4e+38, beyond f16"
// BF16: train.state parameter @big {{.*}}results = [bf16]
// BF16: mpt.matmul {{.*}}operands = [bf16, bf16]
train.state parameter @big : tensor<4x8xf32> = dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100000.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
                                                     [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]> : tensor<4x8xf32>
train.state parameter @small : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
train.state constant @mask : tensor<3x2xf32> = dense<-3.4e+38> : tensor<3x2xf32>
func.func @forward(%x: tensor<3x8xf32> {mpt.name = "x"}, %y: tensor<3x4xf32> {mpt.name = "y"})
    -> (tensor<3x4xf32> {mpt.name = "z"}, tensor<3x2xf32> {mpt.name = "w"}) {
  %b = train.read @big : tensor<4x8xf32>
  %t = mpt.transpose %b {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %0 = mpt.matmul %x, %t : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  %s = train.read @small : tensor<4x2xf32>
  %1 = mpt.matmul %y, %s : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %m = train.read @mask : tensor<3x2xf32>
  %2 = mpt.add %1, %m : tensor<3x2xf32>
  return %0, %2 : tensor<3x4xf32>, tensor<3x2xf32>
}
