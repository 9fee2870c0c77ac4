// RUN: mpt-opt %s --fusion-form | FileCheck %s
// RUN: mpt-opt %s --fusion-form --debug-only=fusion-form 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: expected no update that waits longer than for its gradient

train.state parameter @v : tensor<128x64xf32>
train.state parameter @w : tensor<128x64xf32>

// Each update waits for the finite check of its own gradient alone: the first one's kernel takes no part of the second's in.
// CHECK: %[[G:.*]] = mpt.matmul %arg0, %arg1
// CHECK: %[[R:.*]] = mpt.fusion(%[[G]])
// CHECK: %[[F:.*]] = mpt.fusion(%[[R]]) : (tensor<128xf32>) -> tensor<i1>
// CHECK: %[[H:.*]] = mpt.matmul %arg2, %arg3
// CHECK: %[[S:.*]] = mpt.fusion(%[[H]])
// CHECK: mpt.fusion(%[[S]], %[[F]]) : (tensor<128xf32>, tensor<i1>) -> (tensor<i1>, tensor<i1>)
// CHECK: mpt.fusion(%[[F]], %[[G]],
func.func @step(%x: tensor<128x2xf32>, %y: tensor<2x64xf32>, %d: tensor<128x2xf32>, %e: tensor<2x64xf32>) -> tensor<i1> {
  %v = train.read @v : tensor<128x64xf32>
  %w = train.read @w : tensor<128x64xf32>
  %g = mpt.matmul %x, %y : (tensor<128x2xf32>, tensor<2x64xf32>) -> tensor<128x64xf32>
  %gr = mpt.reduce max %g {axes = array<i64: 1>} : (tensor<128x64xf32>) -> tensor<128xf32>
  %gm = mpt.reduce max %gr {axes = array<i64: 0>} : (tensor<128xf32>) -> tensor<f32>
  %gf = mpt.is_finite %gm : tensor<f32>
  %h = mpt.matmul %d, %e : (tensor<128x2xf32>, tensor<2x64xf32>) -> tensor<128x64xf32>
  %hr = mpt.reduce max %h {axes = array<i64: 1>} : (tensor<128x64xf32>) -> tensor<128xf32>
  %hm = mpt.reduce max %hr {axes = array<i64: 0>} : (tensor<128xf32>) -> tensor<f32>
  %hf = mpt.is_finite %hm : tensor<f32>
  %all = mpt.and %gf, %hf : tensor<i1>
  %gb = mpt.broadcast %gf {dims = array<i64>} : (tensor<i1>) -> tensor<128x64xi1>
  %hb = mpt.broadcast %hf {dims = array<i64>} : (tensor<i1>) -> tensor<128x64xi1>
  %gs = mpt.select %gb, %g, %v : tensor<128x64xi1>, tensor<128x64xf32>
  %hs = mpt.select %hb, %h, %w : tensor<128x64xi1>, tensor<128x64xf32>
  train.write @v, %gs : tensor<128x64xf32>
  train.write @w, %hs : tensor<128x64xf32>
  return %all : tensor<i1>
}
