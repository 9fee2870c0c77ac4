// RUN: mpt-opt %s --fusion-lower-train | FileCheck %s
// Skipping a step is a select between the new value and the old one.
// CHECK: %[[OLD:.*]] = train.read @w
// CHECK: %[[C:.*]] = mpt.broadcast %arg1 {{.*}} -> tensor<8xi1>
// CHECK: %[[V:.*]] = mpt.select %[[C]], %arg0, %[[OLD]]
// CHECK: train.write @w, %[[V]] : tensor<8xf32>
train.state parameter @w : tensor<8xf32>
func.func @step(%new: tensor<8xf32>, %finite: tensor<i1>) {
  train.write @w, %new if %finite : tensor<i1> : tensor<8xf32>
  return
}
