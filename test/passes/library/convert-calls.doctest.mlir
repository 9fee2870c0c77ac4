// RUN: mpt-opt %s --library-convert-calls | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[Y:.*]] = library.gemm %arg0, %arg1 {transpose_b = true} : tensor<4x8xf32>, tensor<16x8xf32> -> tensor<4x16xf32>
// CHECK-NEXT: return %[[Y]]
func.func @evaluate(%a: tensor<4x8xf32>, %b: tensor<16x8xf32>) -> tensor<4x16xf32> {
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}
