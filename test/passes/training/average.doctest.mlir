// RUN: mpt-opt %s --training-average=decay=0.9 | FileCheck %s
// The average of @w starts as @w and follows it.
// CHECK: slot @w.ema : tensor<3xf32> of "w" = dense<5.000000e-01>
train.state parameter @w : tensor<3xf32> = dense<0.5> : tensor<3xf32>
// CHECK: func.func @step
func.func @step(%x: tensor<3xf32>) {
  // CHECK: train.write @w, %[[NEW:[^ ]*]]
  // CHECK: %[[OLD:.*]] = train.read @w.ema
  // CHECK: %[[KEPT:.*]] = mpt.mul %[[OLD]]
  // CHECK: %[[MORE:.*]] = mpt.mul %[[NEW]]
  // CHECK: %[[NEXT:.*]] = mpt.add %[[KEPT]], %[[MORE]]
  // CHECK: train.write @w.ema, %[[NEXT]]
  train.write @w, %x : tensor<3xf32>
  return
}
// CHECK: func.func @evaluate(
// CHECK: train.read @w :
// CHECK: func.func @evaluate_ema(
// CHECK: train.read @w.ema
func.func @evaluate() -> tensor<3xf32> {
  %w = train.read @w : tensor<3xf32>
  return %w : tensor<3xf32>
}
