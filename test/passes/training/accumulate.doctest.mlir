// RUN: mpt-opt %s --training-accumulate=micro-steps=4 | FileCheck %s
// Three calls of accumulate and one of step make one update from the mean of four gradients.
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>
// CHECK: train.state{{ +}}accumulator @w.accumulator : tensor<3xf32> of "w" = dense<0.0
// CHECK-LABEL: func.func @step
func.func @step(%l: tensor<f32> {mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %w = train.read @w : tensor<3xf32>
  // CHECK: %[[G:.*]] = train.gradient @w
  // CHECK: %[[OLD:.*]] = train.read @w.accumulator
  // CHECK: %[[SUM:.*]] = mpt.add %[[OLD]], %[[G]]
  // CHECK: %[[MEAN:.*]] = mpt.mul %[[SUM]], %{{.*}}
  // CHECK: %[[ZERO:.*]] = mpt.constant dense<0.0
  // CHECK: train.write @w.accumulator, %[[ZERO]]
  // CHECK: mpt.sgd %{{.*}}, %[[MEAN]]
  %g = train.gradient @w, %w : tensor<3xf32>
  %n = mpt.constant dense<1> : tensor<i64>
  %new = mpt.sgd %w, %g, %lr, %n : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>) -> tensor<3xf32>
  train.write @w, %new : tensor<3xf32>
  return %l : tensor<f32>
}
// CHECK-LABEL: func.func @accumulate(
// CHECK-NOT: learning_rate
// CHECK-NOT: mpt.sgd
// CHECK: %[[G:.*]] = train.gradient @w
// CHECK: %[[OLD:.*]] = train.read @w.accumulator
// CHECK: %[[SUM:.*]] = mpt.add %[[OLD]], %[[G]]
// CHECK: train.write @w.accumulator, %[[SUM]]
// CHECK-NOT: train.write
