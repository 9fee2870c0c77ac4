// RUN: mpt-opt %s --library-split-heads | FileCheck %s
// The example of docs/generated/passes.md: scores between reshapes that join batch and heads, as exporters write them.
// CHECK: %[[S:.*]] = mpt.matmul %arg0, %arg1 {transpose_b = true} : (tensor<2x3x8x16xbf16>, tensor<2x3x8x16xbf16>) -> tensor<2x3x8x8xbf16>
// CHECK: %[[P:.*]] = mpt.softmax %[[S]] {axis = 3 : i64}
// CHECK: %[[O:.*]] = mpt.matmul %[[P]], %arg2
// CHECK: return %[[O]]
func.func @attention(%q: tensor<2x3x8x16xbf16>, %k: tensor<2x3x8x16xbf16>, %v: tensor<2x3x8x16xbf16>) -> tensor<2x3x8x16xbf16> {
  %qj = mpt.reshape %q : (tensor<2x3x8x16xbf16>) -> tensor<6x8x16xbf16>
  %kj = mpt.reshape %k : (tensor<2x3x8x16xbf16>) -> tensor<6x8x16xbf16>
  %vj = mpt.reshape %v : (tensor<2x3x8x16xbf16>) -> tensor<6x8x16xbf16>
  %sj = mpt.matmul %qj, %kj {transpose_b = true} : (tensor<6x8x16xbf16>, tensor<6x8x16xbf16>) -> tensor<6x8x8xbf16>
  %s = mpt.reshape %sj : (tensor<6x8x8xbf16>) -> tensor<2x3x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x3x8x8xbf16>) -> tensor<2x3x8x8xbf16>
  %pj = mpt.reshape %p : (tensor<2x3x8x8xbf16>) -> tensor<6x8x8xbf16>
  %oj = mpt.matmul %pj, %vj : (tensor<6x8x8xbf16>, tensor<6x8x16xbf16>) -> tensor<6x8x16xbf16>
  %o = mpt.reshape %oj : (tensor<6x8x16xbf16>) -> tensor<2x3x8x16xbf16>
  return %o : tensor<2x3x8x16xbf16>
}
