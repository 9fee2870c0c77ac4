// RUN: mpt-opt %s --training-check-indices | FileCheck %s
// The runtime refuses tokens that are no row of the table before the function starts. The last column is not looked up.

// CHECK-LABEL: func.func @forward(%arg0: tensor<2x5xi64>
// CHECK-SAME: {rt.indices = [#rt.index_check<node = "", offset = 0, shape = [2, 4], strides = [5, 1], ranges = [-9, 8]>]}
func.func @forward(%tokens: tensor<2x5xi64>, %table: tensor<9x3xf32>) -> tensor<2x4x3xf32> {
  %s = mpt.slice %tokens {starts = array<i64: 0, 0>, sizes = array<i64: 2, 4>, strides = array<i64: 1, 1>} : (tensor<2x5xi64>) -> tensor<2x4xi64>
  %y = mpt.gather %table, %s {axis = 0} : (tensor<9x3xf32>, tensor<2x4xi64>) -> tensor<2x4x3xf32>
  return %y : tensor<2x4x3xf32>
}
