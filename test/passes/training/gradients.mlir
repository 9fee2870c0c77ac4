// RUN: mpt-opt %s --training-gradients --split-input-file --verify-diagnostics | FileCheck %s
// A step without parameters gives the loss alone.
// CHECK: func.func @gradients(%{{.*}}: tensor<f32>) -> (tensor<f32> {mpt.name = "loss"})
func.func @step(%l: tensor<f32>) -> (tensor<f32> {mpt.name = "loss"}, tensor<f32> {mpt.name = "grad_norm"}) {
  return %l, %l : tensor<f32>, tensor<f32>
}
// -----
// expected-error@below {{expected a function @step with one block}}
module {}
