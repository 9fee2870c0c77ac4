// RUN: mpt-run %s
// Data movement against NumPy: bit-equal.

func.func @reshape() {
  %x0 = mpt.constant dense<[[1.625, 1.75, 2.5], [3.0, -2.125, -0.5]]> : tensor<2x3xf32>
  %y0 = mpt.reshape %x0 : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[1.625, 1.75], [2.5, 3.0], [-2.125, -0.5]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @transpose() {
  %x0 = mpt.constant dense<[[1.625, 1.75, 2.5], [3.0, -2.125, -0.5]]> : tensor<2x3xf32>
  %y0 = mpt.transpose %x0 {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[1.625, 3.0], [1.75, -2.125], [2.5, -0.5]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @broadcast() {
  %x0 = mpt.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
  %y0 = mpt.broadcast %x0 {dims = array<i64: 1, 2>} : (tensor<2x1xf32>) -> tensor<3x2x4xf32>
  %e0 = mpt.constant dense<[[[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]], [[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]], [[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]]]> : tensor<3x2x4xf32>
  check.equal %y0, %e0 : tensor<3x2x4xf32>
  return
}

func.func @concat() {
  %x0 = mpt.constant dense<[[1.625, 1.75, 2.5], [3.0, -2.125, -0.5]]> : tensor<2x3xf32>
  %x1 = mpt.constant dense<[[-3.0], [0.5]]> : tensor<2x1xf32>
  %y0 = mpt.concat %x0, %x1 {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %e0 = mpt.constant dense<[[1.625, 1.75, 2.5, -3.0], [3.0, -2.125, -0.5, 0.5]]> : tensor<2x4xf32>
  check.equal %y0, %e0 : tensor<2x4xf32>
  return
}

func.func @slice() {
  %x0 = mpt.constant dense<[[1.5, 1.5, 1.875, 0.875, -2.25], [2.125, -0.5, 2.125, 1.875, 2.875], [-3.0, 2.25, 0.75, -0.125, 1.75]]> : tensor<3x5xf32>
  %y0 = mpt.slice %x0 {starts = array<i64: 1, 0>, sizes = array<i64: 2, 3>, strides = array<i64: 1, 2>} : (tensor<3x5xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[2.125, 2.125, 2.875], [-3.0, 0.75, 1.75]]> : tensor<2x3xf32>
  check.equal %y0, %e0 : tensor<2x3xf32>
  return
}

func.func @pad() {
  %x0 = mpt.constant dense<[[2.75, 0.125, -2.5], [1.375, -1.625, -1.625]]> : tensor<2x3xf32>
  %y0 = mpt.pad %x0 {low = array<i64: 1, 0>, high = array<i64: 1, 1>, interior = array<i64: 0, 1>, value = 9.0 : f64} : (tensor<2x3xf32>) -> tensor<4x6xf32>
  %e0 = mpt.constant dense<[[9.0, 9.0, 9.0, 9.0, 9.0, 9.0], [2.75, 9.0, 0.125, 9.0, -2.5, 9.0], [1.375, 9.0, -1.625, 9.0, -1.625, 9.0], [9.0, 9.0, 9.0, 9.0, 9.0, 9.0]]> : tensor<4x6xf32>
  check.equal %y0, %e0 : tensor<4x6xf32>
  return
}

func.func @crop() {
  %x0 = mpt.constant dense<[[2.75, 0.125, -2.5], [1.375, -1.625, -1.625]]> : tensor<2x3xf32>
  %y0 = mpt.pad %x0 {low = array<i64: 0, -1>, high = array<i64: 0, -1>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %e0 = mpt.constant dense<[[0.125], [-1.625]]> : tensor<2x1xf32>
  check.equal %y0, %e0 : tensor<2x1xf32>
  return
}

func.func @reverse() {
  %x0 = mpt.constant dense<[[2.75, 0.125, -2.5], [1.375, -1.625, -1.625]]> : tensor<2x3xf32>
  %y0 = mpt.reverse %x0 {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[-2.5, 0.125, 2.75], [-1.625, -1.625, 1.375]]> : tensor<2x3xf32>
  check.equal %y0, %e0 : tensor<2x3xf32>
  return
}

func.func @iota() {
  %y0 = mpt.iota  {axis = 1 : i64} : () -> tensor<2x3xi64>
  %e0 = mpt.constant dense<[[0, 1, 2], [0, 1, 2]]> : tensor<2x3xi64>
  check.equal %y0, %e0 : tensor<2x3xi64>
  return
}
