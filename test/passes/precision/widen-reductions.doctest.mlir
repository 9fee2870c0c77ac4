// RUN: mpt-opt %s --precision-widen-reductions | FileCheck %s
// A GEMM of FP16 values is summed in FP32, whatever was stated before.
// CHECK: mpt.matmul {{.*}}numerics = #mpt.numerics<in = f16, acc = f32, out = f16>
// CHECK: mpt.matmul {{.*}}numerics = #mpt.numerics<in = f16, acc = f32, out = f16>
func.func @f(%a: tensor<4x4xf16>) -> (tensor<4x4xf16>, tensor<4x4xf16>) {
  %0 = mpt.matmul %a, %a : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>
  %1 = mpt.matmul %a, %a {numerics = #mpt.numerics<in = f16, acc = f16, out = f16>} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>
  return %0, %1 : tensor<4x4xf16>, tensor<4x4xf16>
}
