// RUN: split-file %s %t
// RUN: mpt-opt %t/dense.mlir --training-loss=loss=mse | FileCheck %s --check-prefix=MSE
// RUN: mpt-opt %t/dense.mlir --training-loss=loss=l1 | FileCheck %s --check-prefix=L1
// RUN: mpt-opt %t/dense.mlir --training-loss=loss=bce-with-logits | FileCheck %s --check-prefix=BCE
// RUN: mpt-opt %t/image.mlir --training-loss="ignore-index=-100" | FileCheck %s --check-prefix=IMAGE
// RUN: mpt-opt %t/tokens.mlir --training-loss="class-axis=-1" | FileCheck %s --check-prefix=TOKENS
// RUN: mpt-opt %t/own.mlir --training-loss=loss=none | FileCheck %s --check-prefix=OWN
// RUN: not mpt-opt %t/dense.mlir --training-loss=loss=none 2>&1 | FileCheck %s --check-prefix=NOT-SCALAR
// RUN: not mpt-opt %t/dense.mlir --training-loss=loss=hinge 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mpt-opt %t/taken.mlir --training-loss=loss=mse 2>&1 | FileCheck %s --check-prefix=TAKEN
// RUN: not mpt-opt %t/own.mlir --training-loss 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not mpt-opt %t/none.mlir --training-loss 2>&1 | FileCheck %s --check-prefix=NO-FORWARD

// MSE: %[[T:[a-z0-9]+]]: tensor<2x3xf32> {mpt.name = "target"}) -> (tensor<f32> {mpt.name = "loss"}, tensor<2x3xf32> {mpt.name = "y"})
// MSE: %[[D:.*]] = mpt.sub %{{.*}}, %[[T]]
// MSE: %[[S:.*]] = mpt.mul %[[D]], %[[D]]
// MSE: mpt.reduce{{ +}}mean %[[S]] {axes = array<i64: 0, 1>, mpt.loss}
// L1: %[[D:.*]] = mpt.sub
// L1: %[[A:.*]] = mpt.abs %[[D]]
// L1: mpt.reduce{{ +}}mean %[[A]]
// BCE-DAG: %[[P:.*]] = mpt.softplus %[[X:.*]] :
// BCE-DAG: %[[XT:.*]] = mpt.mul %{{.*}}, %{{.*}} :
// BCE: mpt.sub %[[P]], %[[XT]]
//--- dense.mlir
func.func @forward(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x3xf32> {mpt.name = "y"}) {
  return %x : tensor<2x3xf32>
}
// IMAGE: %[[L:[a-z0-9]+]]: tensor<2x4x5xi64> {mpt.name = "labels"}
// IMAGE: %[[T:.*]] = mpt.transpose %{{.*}} {permutation = array<i64: 0, 2, 3, 1>}
// IMAGE: %[[X:.*]] = mpt.reshape %[[T]] : (tensor<2x4x5x3xf32>) -> tensor<40x3xf32>
// IMAGE: %[[R:.*]] = mpt.reshape %[[L]] : (tensor<2x4x5xi64>) -> tensor<40xi64>
// IMAGE: mpt.softmax_cross_entropy %[[X]], %[[R]] {ignore_index = -100
//--- image.mlir
func.func @forward(%x: tensor<2x3x4x5xf32> {mpt.name = "x"}) -> (tensor<2x3x4x5xf32> {mpt.name = "y"}) {
  return %x : tensor<2x3x4x5xf32>
}
// TOKENS: tensor<2x3xi64> {mpt.name = "labels"}
// TOKENS-NOT: mpt.transpose
// TOKENS: mpt.reshape %{{.*}} : (tensor<2x3x7xf32>) -> tensor<6x7xf32>
//--- tokens.mlir
func.func @forward(%x: tensor<2x3x7xf32> {mpt.name = "x"}) -> (tensor<2x3x7xf32> {mpt.name = "y"}) {
  return %x : tensor<2x3x7xf32>
}
// The loss is FP32 and named, whatever the graph called it.
// OWN: -> (tensor<f32> {mpt.name = "loss"}, tensor<3xf32> {mpt.name = "y"})
// OWN: mpt.reshape
// OWN: mpt.cast %{{.*}} : tensor<f16> to tensor<f32>
// RANK: error: expected logits with classes on axis 1, got 'tensor<1xf16>'
//--- own.mlir
func.func @forward(%x: tensor<1xf16> {mpt.name = "x"}, %y: tensor<3xf32> {mpt.name = "z"}) -> (tensor<1xf16> {mpt.name = "l"}, tensor<3xf32> {mpt.name = "y"}) {
  return %x, %y : tensor<1xf16>, tensor<3xf32>
}
// TAKEN: error: expected no input named 'target', which the loss adds
//--- taken.mlir
func.func @forward(%x: tensor<2xf32> {mpt.name = "target"}) -> (tensor<2xf32> {mpt.name = "y"}) {
  return %x : tensor<2xf32>
}
// NO-FORWARD: error: expected a function @forward with one block
//--- none.mlir
module {}
// NOT-SCALAR: error: expected the first result to be a scalar loss, got 'tensor<2x3xf32>'
// UNKNOWN: error: expected loss softmax-cross-entropy, mse, l1, bce-with-logits or none, got 'hinge'
