// RUN: mpt-opt %s --training-optimizer=optimizer=sgd,lr=0.1,momentum=0.9 | FileCheck %s
// The update stands right after the gradient; the momentum is optimizer state of the parameter.

// CHECK: module attributes {mpt.optimizer = {kind = "sgd", learning_rate = 1.000000e-01 : f64, spec = "sgd,lr=0.1,momentum=0.9"}}
// CHECK: train.state{{ +}}parameter @w
// CHECK: train.state{{ +}}counter @mpt.step : tensor<i64> = dense<0>
// CHECK: train.state{{ +}}slot @w.momentum : tensor<3xf32> of "w" = dense<0.0
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>

// CHECK: func.func @step(%{{.*}}: tensor<f32> {mpt.name = "loss_in"}, %[[LR:.*]]: tensor<f32> {mpt.default = 1.000000e-01 : f64, mpt.name = "learning_rate"})
func.func @step(%l: tensor<f32> {mpt.name = "loss_in"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  // CHECK: %[[N:.*]] = train.read @mpt.step
  // CHECK: %[[NEXT:.*]] = mpt.add %[[N]]
  // CHECK: train.write @mpt.step, %[[NEXT]]
  %w = train.read @w : tensor<3xf32>
  // CHECK: %[[G:.*]] = train.gradient @w
  // CHECK-NEXT: %[[M:.*]] = train.read @w.momentum
  // CHECK-NEXT: %[[NEW:.*]], %[[SLOT:.*]] = mpt.sgd %{{.*}}, %[[G]], %[[LR]], %[[NEXT]], %[[M]] {momentum = 9.0
  // CHECK-NEXT: train.write @w, %[[NEW]]
  // CHECK-NEXT: train.write @w.momentum, %[[SLOT]]
  %g = train.gradient @w, %w : tensor<3xf32>
  return %l : tensor<f32>
}
