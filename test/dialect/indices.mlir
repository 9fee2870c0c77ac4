// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// Ops over indices that would reach beyond their data do not verify, whoever made them.

func.func @elements(%x: tensor<4x3xf32>, %i: tensor<9x3xi64>, %few: tensor<4x2xi64>) -> (tensor<9x3xf32>, tensor<4x2xf32>) {
  %0 = mpt.gather_elements %x, %i {axis = 0} : (tensor<4x3xf32>, tensor<9x3xi64>) -> tensor<9x3xf32>
  %1 = mpt.gather_elements %x, %few {axis = 1} : (tensor<4x3xf32>, tensor<4x2xi64>) -> tensor<4x2xf32>
  return %0, %1 : tensor<9x3xf32>, tensor<4x2xf32>
}

// -----

func.func @gatherElements(%x: tensor<4x3xf32>, %i: tensor<4x5xi64>) -> tensor<4x5xf32> {
  // expected-error @below {{expected indices into 'tensor<4x3xf32>' along axis 0, got 'tensor<4x5xi64>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.gather_elements %x, %i {axis = 0} : (tensor<4x3xf32>, tensor<4x5xi64>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// -----

func.func @axis(%x: tensor<4x3xf32>, %i: tensor<4x3xi64>) -> tensor<4x3xf32> {
  // expected-error @below {{expected indices into 'tensor<4x3xf32>' along axis 2, got 'tensor<4x3xi64>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.gather_elements %x, %i {axis = 2} : (tensor<4x3xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

func.func @scatterElements(%x: tensor<4x3xf32>, %i: tensor<4x5xi64>, %u: tensor<4x5xf32>) -> tensor<4x3xf32> {
  // expected-error @below {{expected indices into 'tensor<4x3xf32>' along axis 0, got 'tensor<4x5xi64>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.scatter_elements %x, %i, %u {axis = 0} : (tensor<4x3xf32>, tensor<4x5xi64>, tensor<4x5xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

func.func @tuples(%x: tensor<4x3xf32>, %i: tensor<2x3xi64>, %u: tensor<2xf32>) -> tensor<4x3xf32> {
  // expected-error @below {{expected index tuples into 'tensor<4x3xf32>' behind 0 dimensions, got 'tensor<2x3xi64>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.scatter_nd %x, %i, %u : (tensor<4x3xf32>, tensor<2x3xi64>, tensor<2xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

func.func @batch(%x: tensor<4x3xf32>, %i: tensor<2x1xi64>, %u: tensor<2xf32>) -> tensor<4x3xf32> {
  // expected-error @below {{expected index tuples into 'tensor<4x3xf32>' behind 7 dimensions, got 'tensor<2x1xi64>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.scatter_nd %x, %i, %u {batch_dims = 7} : (tensor<4x3xf32>, tensor<2x1xi64>, tensor<2xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// -----

func.func @updates(%x: tensor<4x3xf32>, %i: tensor<2x1xi64>, %u: tensor<2x5xf32>) -> tensor<4x3xf32> {
  // expected-error @below {{expected updates of shape [2, 3], got 'tensor<2x5xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = mpt.scatter_nd %x, %i, %u : (tensor<4x3xf32>, tensor<2x1xi64>, tensor<2x5xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
