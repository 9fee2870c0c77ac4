// RUN: split-file %s %t
// RUN: mpt-opt %t/dense.mlir --training-loss=loss=mse | FileCheck %s --check-prefix=MSE
// RUN: mpt-opt %t/dense.mlir --training-loss=loss=l1 | FileCheck %s --check-prefix=L1
// RUN: mpt-opt %t/dense.mlir --training-loss=loss=bce-with-logits | FileCheck %s --check-prefix=BCE
// RUN: mpt-opt %t/image.mlir --training-loss=loss=softmax-cross-entropy,ignore-index=-100 | FileCheck %s --check-prefix=IMAGE
// RUN: mpt-opt %t/tokens.mlir --training-loss=loss=softmax-cross-entropy,class-axis=-1 | FileCheck %s --check-prefix=TOKENS
// RUN: mpt-opt %t/speech.mlir --training-loss=loss=ctc,max-labels=2,batch-axis=0,blank=4 | FileCheck %s --check-prefix=CTC
// RUN: not mpt-opt %t/speech.mlir --training-loss=loss=ctc,max-labels=2,blank=5,batch-axis=0 2>&1 | FileCheck %s --check-prefix=BLANK
// RUN: not mpt-opt %t/speech.mlir --training-loss=loss=ctc,max-labels=2,batch-axis=2 2>&1 | FileCheck %s --check-prefix=AXES
// RUN: not mpt-opt %t/dense.mlir --training-loss=loss=ctc,max-labels=2 2>&1 | FileCheck %s --check-prefix=STEPS
// RUN: not mpt-opt %t/dense.mlir --training-loss=loss=ctc 2>&1 | FileCheck %s --check-prefix=MAX-LABELS
// RUN: mpt-opt %t/own.mlir --training-loss=loss=none | FileCheck %s --check-prefix=OWN
// RUN: not mpt-opt %t/dense.mlir --training-loss=loss=none 2>&1 | FileCheck %s --check-prefix=NOT-SCALAR
// RUN: not mpt-opt %t/dense.mlir --training-loss=loss=hinge 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mpt-opt %t/taken.mlir --training-loss=loss=mse 2>&1 | FileCheck %s --check-prefix=TAKEN
// RUN: not mpt-opt %t/own.mlir --training-loss 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: mpt-opt %t/several.mlir '--training-loss=loss=softmax-cross-entropy,class-axis=-1,output=words;mse,output=size,weight=0.5' | FileCheck %s --check-prefix=SEVERAL
// RUN: not mpt-opt %t/several.mlir --training-loss=loss=mse,output=length 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not mpt-opt %t/several.mlir '--training-loss=loss=mse,output=size;mse' 2>&1 | FileCheck %s --check-prefix=UNNAMED
// RUN: not mpt-opt %t/flags.mlir --training-loss=loss=mse 2>&1 | FileCheck %s --check-prefix=FLAGS
// RUN: mpt-opt %t/second.mlir --training-loss=loss=none | FileCheck %s --check-prefix=SECOND
// RUN: not mpt-opt %t/none.mlir --training-loss 2>&1 | FileCheck %s --check-prefix=NO-FORWARD

// MSE: %[[T:[a-z0-9]+]]: tensor<2x3xf32> {mpt.name = "target"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<2x3xf32> {mpt.name = "y"})
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
// OWN: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<3xf32> {mpt.name = "y"})
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
// Another result that is called loss gets a number.
// SECOND: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<3xf32> {mpt.name = "loss_1"}, tensor<3xf32> {mpt.name = "loss_1_1"})
//--- second.mlir
func.func @forward(%x: tensor<f32> {mpt.name = "x"}, %y: tensor<3xf32> {mpt.name = "y"}) -> (tensor<f32> {mpt.name = "l"}, tensor<3xf32> {mpt.name = "loss"}, tensor<3xf32> {mpt.name = "loss_1"}) {
  return %x, %y, %y : tensor<f32>, tensor<3xf32>, tensor<3xf32>
}
// NO-FORWARD: error: expected a function @forward with one block
//--- none.mlir
module {}
// NOT-SCALAR: error: expected the first result to be a scalar loss, got 'tensor<2x3xf32>'
// UNKNOWN: error: loss: expected a loss (softmax-cross-entropy, nll, focal, mse, l1, smooth-l1, huber, bce-with-logits, kl, cosine, ctc, none), got 'hinge'
// Several losses: a target each, their weighted sum first, then each with its weight.
// SEVERAL: %[[A:[a-z0-9]+]]: tensor<2x3xi64> {mpt.name = "words_labels"}, %[[B:[a-z0-9]+]]: tensor<4xf32> {mpt.name = "size_target"}
// SEVERAL-SAME: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "loss_words", mpt.weight = 1.000000e+00 : f64}, tensor<f32> {mpt.name = "loss_size", mpt.weight = 5.000000e-01 : f64}, tensor<2x3x7xf32> {mpt.name = "words"}, tensor<4xf32> {mpt.name = "size"})
// SEVERAL: %[[X:.*]], %{{.*}}, %{{.*}} = mpt.softmax_cross_entropy
// SEVERAL: %[[Y:.*]] = mpt.reduce{{ +}}mean
// SEVERAL: %[[W:.*]] = mpt.mul %[[Y]], %{{.*}} {mpt.loss}
// SEVERAL: %[[S:.*]] = mpt.add %[[X]], %[[W]] {mpt.loss}
// SEVERAL: return %[[S]], %[[X]], %[[Y]]
// Steps first, then one state a blank or label; the recursion is one op, of class loss, which stays FP32.
// CTC: tensor<3x2xi64> {mpt.name = "labels"}, %{{[a-z0-9]+}}: tensor<3xi64> {mpt.name = "input_lengths"}, %{{[a-z0-9]+}}: tensor<3xi64> {mpt.name = "label_lengths"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}
// CTC: %[[W:.*]] = mpt.cast %{{.*}} {mpt.loss{{.*}} : tensor<2x3x5xf16> to tensor<2x3x5xf32>
// CTC: mpt.log_softmax %[[W]] {axis = 2 : i64, mpt.loss}
// CTC: mpt.gather_elements %{{.*}} {axis = 2 : i64, mpt.loss} : (tensor<2x3x5xf32>, tensor<2x3x2xi64>)
// CTC: mpt.alignments {{.*}} {mpt.loss} : (tensor<2x3x5xf32>, tensor<3x5xf32>, tensor<2x3xf32>) -> (tensor<3x5xf32>, tensor<2x3x5xf32>)
// CTC-NOT: mpt.alignments
// CTC: mpt.log %{{.*}} {mpt.loss} : tensor<3xf32>
// CTC: mpt.reduce mean
// BLANK: error: expected the blank to be one of 5 classes, got 5
// AXES: error: expected scores of rank 3 with sequences on axis 2 and classes on axis 2
// STEPS: error: expected scores of rank 3 with sequences on axis 1 and classes on axis 2, got 'tensor<2x3xf32>'
// MAX-LABELS: error: loss: expected max-labels=N after ctc, the number of labels of the longest sequence, got 'ctc'
//--- speech.mlir
func.func @forward(%x: tensor<3x2x5xf16> {mpt.name = "x"}) -> (tensor<3x2x5xf16> {mpt.name = "y"}) {
  return %x : tensor<3x2x5xf16>
}
// MISSING: error: expected a float tensor as a result named 'length', to take the loss of, got 'words', 'size'
// UNNAMED: error: loss: expected each of several losses to name an output of its own, as in mse,output=NAME, got 'mse'
//--- several.mlir
func.func @forward(%x: tensor<2x3x7xf32> {mpt.name = "x"}, %z: tensor<4xf32> {mpt.name = "z"}) -> (tensor<2x3x7xf32> {mpt.name = "words"}, tensor<4xf32> {mpt.name = "size"}) {
  return %x, %z : tensor<2x3x7xf32>, tensor<4xf32>
}
//--- flags.mlir
func.func @forward(%x: tensor<2xi1> {mpt.name = "x"}, %z: tensor<4xf32> {mpt.name = "z"}) -> (tensor<2xi1> {mpt.name = "chosen"}, tensor<4xf32> {mpt.name = "scores"}) {
  return %x, %z : tensor<2xi1>, tensor<4xf32>
}
// FLAGS: error: expected a float tensor as the first result, to take the loss of, got 'tensor<2xi1>'; name another result, as in --loss=mse,output=scores
