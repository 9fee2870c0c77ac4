// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s --training-check-indices -split-input-file | FileCheck %s
// RUN: mpt-opt %s --training-check-indices -split-input-file | mpt-opt -split-input-file | FileCheck %s

// Both ends of a dimension; the node's name; duplicates are noted once, as the gradient's.
// CHECK-LABEL: func.func @gather(
// CHECK-SAME: %{{.*}}: tensor<2x3xi64> {rt.indices = [#rt.index_check<node = "embed", offset = 0, shape = [6], strides = [1], ranges = [-4, 3]>]}
// CHECK-SAME: %{{.*}}: tensor<4x5xf32>) ->
func.func @gather(%i: tensor<2x3xi64>, %w: tensor<4x5xf32>) -> (tensor<2x3x5xf32>, tensor<4x5xf32>) {
  %y = mpt.gather %w, %i {axis = 0} : (tensor<4x5xf32>, tensor<2x3xi64>) -> tensor<2x3x5xf32> loc("embed")
  %g = mpt.scatter_add %i, %y {axis = 0} : (tensor<2x3xi64>, tensor<2x3x5xf32>) -> tensor<4x5xf32> loc("embed_gradient")
  return %y, %g : tensor<2x3x5xf32>, tensor<4x5xf32>
}

// -----

// Labels are not counted from the end, and the one to ignore is legal; through a reshape and a cast.
// CHECK-LABEL: func.func @labels(
// CHECK-SAME: tensor<2x4xi32> {rt.indices = [#rt.index_check<node = "loss", offset = 0, shape = [8], strides = [1], ranges = [-100, -100, 0, 9]>]}
func.func @labels(%x: tensor<8x10xf32>, %l: tensor<2x4xi32>) -> tensor<f32> {
  %r = mpt.reshape %l : (tensor<2x4xi32>) -> tensor<8xi32>
  %c = mpt.cast %r : tensor<8xi32> to tensor<8xi64>
  %loss, %lse, %total = mpt.softmax_cross_entropy %x, %c {reduction = #mpt<loss_reduction mean>, ignore_index = -100 : i64} : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>) loc("loss")
  return %loss : tensor<f32>
}

// -----

// A view leaves elements out, which may be anything.
// CHECK-LABEL: func.func @slice(
// CHECK-SAME: offset = 1, shape = [2, 4], strides = [6, 1], ranges = [-7, 6]
func.func @slice(%t: tensor<2x6xi64>, %w: tensor<7x3xf32>) -> tensor<4x2x3xf32> {
  %s = mpt.slice %t {starts = array<i64: 0, 1>, sizes = array<i64: 2, 4>, strides = array<i64: 1, 1>} : (tensor<2x6xi64>) -> tensor<2x4xi64>
  %p = mpt.transpose %s {permutation = array<i64: 1, 0>} : (tensor<2x4xi64>) -> tensor<4x2xi64>
  %y = mpt.gather %w, %p {axis = 0} : (tensor<7x3xf32>, tensor<4x2xi64>) -> tensor<4x2x3xf32>
  return %y : tensor<4x2x3xf32>
}

// -----

// Every position of a tuple has its own range.
// CHECK-LABEL: func.func @tuples(
// CHECK-SAME: offset = 0, shape = [3], strides = [2], ranges = [-4, 3]
// CHECK-SAME: offset = 1, shape = [3], strides = [2], ranges = [-6, 5]
func.func @tuples(%i: tensor<3x2xi64>, %x: tensor<4x6xf32>) -> tensor<3xf32> {
  %y = mpt.gather_nd %x, %i : (tensor<4x6xf32>, tensor<3x2xi64>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

// Arithmetic with constants: columns with offsets of their own, negative indices that the model wraps by itself.
// CHECK-LABEL: func.func @arithmetic(
// CHECK-SAME: offset = 0, shape = [3], strides = [2], ranges = [-10, 9]
// CHECK-SAME: offset = 1, shape = [3], strides = [2], ranges = [-14, 5]
// CHECK-SAME: tensor<3xi64> {rt.indices = [#rt.index_check<{{.*}}ranges = [-20, 9]>]}
func.func @arithmetic(%i: tensor<3x2xi64>, %j: tensor<3xi64>, %w: tensor<10x3xf32>) -> (tensor<3x2x3xf32>, tensor<3x3xf32>) {
  %offsets = mpt.constant dense<[0, 4]> : tensor<2xi64>
  %all = mpt.broadcast %offsets {dims = array<i64: 1>} : (tensor<2xi64>) -> tensor<3x2xi64>
  %sum = mpt.add %i, %all : tensor<3x2xi64>
  %y = mpt.gather %w, %sum {axis = 0} : (tensor<10x3xf32>, tensor<3x2xi64>) -> tensor<3x2x3xf32>
  %zero = mpt.constant dense<0> : tensor<3xi64>
  %ten = mpt.constant dense<10> : tensor<3xi64>
  %negative = mpt.compare lt %j, %zero : tensor<3xi64>
  %wrapped = mpt.add %j, %ten : tensor<3xi64>
  %index = mpt.select %negative, %wrapped, %j : tensor<3xi1>, tensor<3xi64>
  %z = mpt.gather %w, %index {axis = 0} : (tensor<10x3xf32>, tensor<3xi64>) -> tensor<3x3xf32>
  return %y, %z : tensor<3x2x3xf32>, tensor<3x3xf32>
}

// -----

// In range whatever the argument holds, computed from values that are no arguments, or computed in a way that is not followed.
// CHECK-LABEL: func.func @nothing(
// CHECK-NOT: rt.indices
func.func @nothing(%i: tensor<3xi64>, %m: tensor<3xi1>, %w: tensor<10x3xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>) {
  %zero = mpt.constant dense<0> : tensor<3xi64>
  %nine = mpt.constant dense<9> : tensor<3xi64>
  %low = mpt.max %i, %zero : tensor<3xi64>
  %inside = mpt.min %low, %nine : tensor<3xi64>
  %y = mpt.gather %w, %inside {axis = 0} : (tensor<10x3xf32>, tensor<3xi64>) -> tensor<3x3xf32>
  %z = mpt.gather %w, %nine {axis = 0} : (tensor<10x3xf32>, tensor<3xi64>) -> tensor<3x3xf32>
  %masked = mpt.select %m, %i, %zero : tensor<3xi1>, tensor<3xi64>
  %v = mpt.gather %w, %masked {axis = 0} : (tensor<10x3xf32>, tensor<3xi64>) -> tensor<3x3xf32>
  return %y, %z, %v : tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>
}
