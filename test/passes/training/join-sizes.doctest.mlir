// RUN: mpt-opt %s --training-join-sizes | FileCheck %s
// Two sizes of one model: one state, a function a size, and a list of the sizes for the runtime.
// CHECK: module attributes {mpt.manifest = {sizes = ["N=2", "N=3"]}
// CHECK: train.state{{ +}}parameter @w
// CHECK-NOT: train.state
// CHECK: func.func @predict(%{{.*}}: tensor<2xf32>
// CHECK: func.func @"predict[N=3]"(%{{.*}}: tensor<3xf32>
module {
  module @"N=2" {
    train.state parameter @w : tensor<f32> = dense<0.5> : tensor<f32>
    func.func @predict(%x: tensor<2xf32> {mpt.name = "x"}) -> (tensor<2xf32> {mpt.name = "y"}) {
      %w = train.read @w : tensor<f32>
      %b = mpt.broadcast %w {dims = array<i64>} : (tensor<f32>) -> tensor<2xf32>
      %y = mpt.mul %x, %b : tensor<2xf32>
      return %y : tensor<2xf32>
    }
  }
  module @"N=3" {
    train.state parameter @w : tensor<f32> = dense<0.5> : tensor<f32>
    func.func @predict(%x: tensor<3xf32> {mpt.name = "x"}) -> (tensor<3xf32> {mpt.name = "y"}) {
      %w = train.read @w : tensor<f32>
      %b = mpt.broadcast %w {dims = array<i64>} : (tensor<f32>) -> tensor<3xf32>
      %y = mpt.mul %x, %b : tensor<3xf32>
      return %y : tensor<3xf32>
    }
  }
}
