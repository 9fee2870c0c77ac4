// RUN: mpt-opt %s --training-gradients --split-input-file --verify-diagnostics | FileCheck %s
// A step without parameters gives the loss alone.
// CHECK: func.func @gradients(%{{.*}}: tensor<f32>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>})
func.func @step(%l: tensor<f32>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "grad_norm", train.role = #train<role grad_norm>}) {
  return %l, %l : tensor<f32>, tensor<f32>
}
// -----
// expected-error@below {{expected a function @step with one block}}
module {}
// -----
// A gradient has its parameter's name, and the loss another one.
// CHECK: func.func @gradients(%{{.*}}: tensor<f32>) -> (tensor<f32> {mpt.name = "loss_1", train.role = #train<role loss>}, tensor<f32> {mpt.name = "loss"})
train.state parameter @loss : tensor<f32> = dense<0.5> : tensor<f32>
func.func @step(%l: tensor<f32>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %p = train.read @loss : tensor<f32>
  %g = train.gradient @loss, %p : tensor<f32>
  return %l : tensor<f32>
}
