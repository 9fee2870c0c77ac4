// RUN: mpt-opt %s --library-form-attention | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[O:.*]], %{{.*}} = library.attention %arg0, %arg1, %arg2 {scale = 1.000000e+00 : f64}
// CHECK: return %[[O]]
func.func @attention(%q: tensor<8x12x64x64xbf16>, %k: tensor<8x12x64x64xbf16>, %v: tensor<8x12x64x64xbf16>) -> tensor<8x12x64x64xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<8x12x64x64xbf16>, tensor<8x12x64x64xbf16>) -> tensor<8x12x64x64xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<8x12x64x64xbf16>) -> tensor<8x12x64x64xbf16>
  %o = mpt.matmul %p, %v : (tensor<8x12x64x64xbf16>, tensor<8x12x64x64xbf16>) -> tensor<8x12x64x64xbf16>
  return %o : tensor<8x12x64x64xbf16>
}
