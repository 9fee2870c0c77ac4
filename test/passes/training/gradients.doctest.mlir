// RUN: mpt-opt %s --training-gradients | FileCheck %s
// The results come in the order of the states, whatever the order of the backward ops.
train.state parameter @a : tensor<3xf32> = dense<0.5> : tensor<3xf32>
train.state parameter @b : tensor<f32> = dense<0.5> : tensor<f32>
func.func @step(%l: tensor<f32> {mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %a = train.read @a : tensor<3xf32>
  %b = train.read @b : tensor<f32>
  %gb = train.gradient @b, %b : tensor<f32>
  %ga = train.gradient @a, %a : tensor<3xf32>
  %n = mpt.constant dense<1> : tensor<i64>
  %new = mpt.sgd %a, %ga, %lr, %n : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>) -> tensor<3xf32>
  train.write @a, %new : tensor<3xf32>
  return %l : tensor<f32>
}
// CHECK-LABEL: func.func @gradients(%{{.*}}: tensor<f32> {mpt.name = "x"})
// CHECK-SAME: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<3xf32> {mpt.name = "a"}, tensor<f32> {mpt.name = "b"})
// CHECK: %[[B:.*]] = train.gradient @b
// CHECK: %[[A:.*]] = train.gradient @a
// CHECK-NOT: mpt.sgd
// CHECK-NOT: train.write
// CHECK: return %{{.*}}, %[[A]], %[[B]]
