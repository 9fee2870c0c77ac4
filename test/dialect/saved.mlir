// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// Gradients read the values that their forward operation saves, in its shapes; matrices are both FP64 or neither.

func.func @good(%x: tensor<2x3x4xf32>, %c: tensor<3xf32>, %l: tensor<4xf32>, %s: tensor<2x3xf32>) {
  %0:3 = mpt.batch_norm_backward %x, %x, %c, %c, %c {epsilon = 1.0e-05 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
  %1:3 = mpt.layer_norm_backward %x, %x, %l, %s, %s {axis = 2} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<4xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @batch(%x: tensor<2x3x4xf32>, %c: tensor<3xf32>, %five: tensor<5xf32>) {
  // expected-error @below {{expected variance of shape [3] as x has it, got 'tensor<5xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = mpt.batch_norm_backward %x, %x, %c, %c, %five {epsilon = 1.0e-05 : f64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<5xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @layer(%x: tensor<2x3x4xf32>, %l: tensor<4xf32>, %s: tensor<2x3xf32>) {
  // expected-error @below {{expected inv_std of shape [2, 3] as x has it, got 'tensor<4xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = mpt.layer_norm_backward %x, %x, %l, %s, %l {axis = 2} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<4xf32>, tensor<2x3xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rms(%x: tensor<2x4xf32>, %l: tensor<4xf32>, %s: tensor<2xf32>, %dy: tensor<2x5xf32>) {
  // expected-error @below {{expected dy of shape [2, 4] as x has it, got 'tensor<2x5xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = mpt.rms_norm_backward %dy, %x, %l, %s {axis = 1} : (tensor<2x5xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<2xf32>) -> (tensor<2x4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @group(%x: tensor<2x6x4xf32>, %c: tensor<6xf32>, %s: tensor<2x3xf32>) {
  // expected-error @below {{expected mean of shape [2, 2] as x has it, got 'tensor<2x3xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = mpt.group_norm_backward %x, %x, %c, %s, %s {groups = 2} : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @softmax(%dy: tensor<2x4xf32>, %y: tensor<2x3xf32>) {
  // expected-error @below {{expected y of dy's shape, got 'tensor<2x3xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.softmax_backward %dy, %y {axis = 1} : (tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @loss(%logits: tensor<4x3xf32>, %labels: tensor<4xi64>, %sum: tensor<3xf32>, %one: tensor<f32>) {
  // expected-error @below {{expected log_sum_exp of shape [4], got 'tensor<3xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.softmax_cross_entropy_backward %one, %logits, %labels, %sum, %one {reduction = #mpt<loss_reduction mean>} : (tensor<f32>, tensor<4x3xf32>, tensor<4xi64>, tensor<3xf32>, tensor<f32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @matrices(%a: tensor<2x3xf32>, %b: tensor<3x4xf64>) {
  // expected-error @below {{expected FP64 in both matrices or none, got 'tensor<2x3xf32>' and 'tensor<3x4xf64>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.matmul %a, %b : (tensor<2x3xf32>, tensor<3x4xf64>) -> tensor<2x4xf32>
  return
}
