// RUN: mpt-opt %s --library-group-queries | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[O:.*]], %{{.*}} = library.attention {{.*}} : tensor<2x4x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
// CHECK: return %[[O]]
func.func @attend(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> tensor<2x4x8x16xbf16> {
  %k5 = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %ks = mpt.reshape %k5 : (tensor<2x2x2x8x16xbf16>) -> tensor<2x4x8x16xbf16>
  %v5 = mpt.broadcast %v {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %vs = mpt.reshape %v5 : (tensor<2x2x2x8x16xbf16>) -> tensor<2x4x8x16xbf16>
  %o, %stats = library.attention %q, %ks, %vs {scale = 0.25 : f64} : tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16> -> tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>
  return %o : tensor<2x4x8x16xbf16>
}
