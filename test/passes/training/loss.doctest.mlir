// RUN: mpt-opt %s --training-loss=loss=softmax-cross-entropy | FileCheck %s
// A classifier's logits become the mean cross entropy with class labels.

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[LOGITS:.*]]: tensor<4x10xf32> {mpt.name = "x"},
// CHECK-SAME: %[[LABELS:.*]]: tensor<4xi64> {mpt.name = "labels"})
// CHECK-SAME: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<4x10xf32> {mpt.name = "logits"})
func.func @forward(%x: tensor<4x10xf32> {mpt.name = "x"}) -> (tensor<4x10xf32> {mpt.name = "logits"}) {
  // CHECK: %[[LOSS:.*]], %{{.*}}, %{{.*}} = mpt.softmax_cross_entropy %[[LOGITS]], %[[LABELS]] {reduction = #mpt<loss_reduction mean>}
  // CHECK: return %[[LOSS]], %[[LOGITS]]
  return %x : tensor<4x10xf32>
}
