// RUN: mpt-opt %s -o %t && mpt-opt %t | FileCheck %s

// CHECK-LABEL: func.func @forms
// CHECK: library.gemm %arg0, %arg1 : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xf32>
// CHECK: %{{.*}}, %[[KEPT:.*]] = library.gemm %arg0, %arg1 bias %arg2 : tensor<16xbf16> {alpha = 5.000000e-01 : f64, epilogue = #library.epilogue<activation = gelu_tanh, keep = true>} : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16> kept tensor<4x16xbf16>
// CHECK: library.gemm %arg0, %arg1 aux %[[KEPT]] : tensor<4x16xbf16> {epilogue = #library.epilogue<activation = gelu_tanh_gradient, sum = d>} : {{.*}} -> tensor<4x16xbf16> sums tensor<16xbf16>
// CHECK: library.gemm %arg0, %{{.*}} {epilogue = #library.epilogue<sum = b>, transpose_a = true} : {{.*}} -> tensor<8x16xbf16> sums tensor<16xbf16>
// CHECK: library.gemm %arg0, %arg1 bias %arg2 : tensor<16xbf16> {epilogue = #library.epilogue<activation = relu, round = true>}
// CHECK: library.gemm %arg0, %arg1 operand_scales %arg3, %arg4 : tensor<f32>, tensor<f32> :
// CHECK: library.gemm %arg0, %arg1 scale %arg3 : tensor<f32> :
func.func @forms(%a: tensor<4x8xbf16>, %b: tensor<8x16xbf16>, %bias: tensor<16xbf16>, %s: tensor<f32>, %t: tensor<f32>) -> (tensor<4x16xf32>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<16xbf16>, tensor<8x16xbf16>, tensor<16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>) {
  %plain = library.gemm %a, %b : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xf32>
  %g, %kept = library.gemm %a, %b bias %bias : tensor<16xbf16> {alpha = 0.5 : f64, epilogue = #library.epilogue<activation = gelu_tanh, keep = true>} : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16> kept tensor<4x16xbf16>
  %dz, %db = library.gemm %a, %b aux %kept : tensor<4x16xbf16> {epilogue = #library.epilogue<activation = gelu_tanh_gradient, sum = d>} : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16> sums tensor<16xbf16>
  %dw, %sums = library.gemm %a, %dz {epilogue = #library.epilogue<sum = b>, transpose_a = true} : tensor<4x8xbf16>, tensor<4x16xbf16> -> tensor<8x16xbf16> sums tensor<16xbf16>
  %relu = library.gemm %a, %b bias %bias : tensor<16xbf16> {epilogue = #library.epilogue<activation = relu, round = true>} : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
  %scaled = library.gemm %a, %b operand_scales %s, %t : tensor<f32>, tensor<f32> : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
  %one = library.gemm %a, %b scale %s : tensor<f32> : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
  return %plain, %g, %dz, %db, %dw, %sums, %relu, %scaled, %one : tensor<4x16xf32>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<16xbf16>, tensor<8x16xbf16>, tensor<16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>
}
