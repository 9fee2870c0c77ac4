// RUN: mpt-run %s
// RUN: mpt-opt %s --library-convert-calls -o %t.mlir && mpt-run %t.mlir
// Convolutions and their gradients against direct sums in NumPy; values over 8, so that sums are exact.

func.func @plane() {
  %x0 = mpt.constant dense<[[[[1.875, 2.5, 2.0], [0.75, -0.375, 0.125], [-1.375, 0.0, -0.75]], [[-1.5, 3.0, -3.0], [-2.5, -1.875, 2.875], [1.125, 2.375, -1.875]]]]> : tensor<1x2x3x3xf32>
  %x1 = mpt.constant dense<[[[[1.375, -0.75], [-0.125, -3.0]], [[0.75, 2.0], [1.0, -2.125]]], [[[0.25, -1.375], [2.875, 2.375]], [[-1.875, 0.0], [2.75, 2.125]]]]> : tensor<2x2x2x2xf32>
  %y0 = mpt.conv %x0, %x1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 1>, groups = 1 : i64} : (tensor<1x2x3x3xf32>, tensor<2x2x2x2xf32>) -> tensor<1x2x3x3xf32>
  %e0 = mpt.constant dense<[[[[-15.609375, 3.0625, -3.25], [8.09375, -10.125, 3.359375], [-8.0625, 12.34375, 0.546875]], [[13.578125, 13.8125, -2.5], [-9.75, -7.578125, 14.390625], [9.578125, 4.015625, -12.671875]]]]> : tensor<1x2x3x3xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x2x3x3xf32>
  return
}

func.func @plane_data() {
  %x0 = mpt.constant dense<[[[[1.25, 0.875, -2.75], [1.5, -0.125, -2.5], [-1.625, 0.25, 1.375]], [[0.0, 0.75, 2.25], [1.125, -0.875, 0.875], [0.625, -2.375, -2.75]]]]> : tensor<1x2x3x3xf32>
  %x1 = mpt.constant dense<[[[[1.375, -0.75], [-0.125, -3.0]], [[0.75, 2.0], [1.0, -2.125]]], [[[0.25, -1.375], [2.875, 2.375]], [[-1.875, 0.0], [2.75, 2.125]]]]> : tensor<2x2x2x2xf32>
  %y0 = mpt.conv_backward_data %x0, %x1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 1>, groups = 1 : i64} : (tensor<1x2x3x3xf32>, tensor<2x2x2x2xf32>) -> tensor<1x2x3x3xf32>
  %e0 = mpt.constant dense<[[[[2.1875, -4.765625, 4.046875], [0.96875, -4.21875, 5.40625], [2.0, -0.5, -14.46875]], [[0.265625, 4.828125, -0.59375], [2.203125, -1.9375, 5.0], [0.09375, -1.5, -11.765625]]]]> : tensor<1x2x3x3xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x2x3x3xf32>
  return
}

func.func @plane_weights() {
  %x0 = mpt.constant dense<[[[[1.875, 2.5, 2.0], [0.75, -0.375, 0.125], [-1.375, 0.0, -0.75]], [[-1.5, 3.0, -3.0], [-2.5, -1.875, 2.875], [1.125, 2.375, -1.875]]]]> : tensor<1x2x3x3xf32>
  %x1 = mpt.constant dense<[[[[1.25, 0.875, -2.75], [1.5, -0.125, -2.5], [-1.625, 0.25, 1.375]], [[0.0, 0.75, 2.25], [1.125, -0.875, 0.875], [0.625, -2.375, -2.75]]]]> : tensor<1x2x3x3xf32>
  %y0 = mpt.conv_backward_weights %x0, %x1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 1>, groups = 1 : i64} : (tensor<1x2x3x3xf32>, tensor<1x2x3x3xf32>) -> tensor<2x2x2x2xf32>
  %e0 = mpt.constant dense<[[[[-3.640625, 4.140625], [1.09375, 4.109375]], [[12.421875, 8.640625], [-5.515625, -6.375]]], [[[2.6875, 0.53125], [8.859375, 2.75]], [[-11.953125, -2.0], [-2.9375, -0.9375]]]]> : tensor<2x2x2x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x2x2x2xf32>
  return
}

func.func @line() {
  %x0 = mpt.constant dense<[[[1.0, -0.75, 0.625, -1.125, -1.625], [-2.125, -0.75, 2.0, -0.625, -0.75]], [[0.5, 2.875, -0.625, 0.5, -0.375], [0.625, -0.375, 0.875, 0.25, 1.125]]]> : tensor<2x2x5xf32>
  %x1 = mpt.constant dense<[[[2.75, -2.125]], [[0.375, -0.375]]]> : tensor<2x1x2xf32>
  %y0 = mpt.conv %x0, %x1 {strides = array<i64: 2>, dilations = array<i64: 2>, pads_low = array<i64: 1>, pads_high = array<i64: 1>, groups = 2 : i64} : (tensor<2x2x5xf32>, tensor<2x1x2xf32>) -> tensor<2x2x3xf32>
  %e0 = mpt.constant dense<[[[1.59375, 0.328125, -3.09375], [0.28125, -0.046875, -0.234375]], [[-6.109375, 6.84375, 1.375], [0.140625, -0.234375, 0.09375]]]> : tensor<2x2x3xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x2x3xf32>
  return
}

func.func @line_data() {
  %x0 = mpt.constant dense<[[[-0.875, -1.625, -2.75], [-0.625, 2.0, -2.5]], [[-0.625, 2.875, 2.75], [-1.75, -3.0, 1.0]]]> : tensor<2x2x3xf32>
  %x1 = mpt.constant dense<[[[2.75, -2.125]], [[0.375, -0.375]]]> : tensor<2x1x2xf32>
  %y0 = mpt.conv_backward_data %x0, %x1 {strides = array<i64: 2>, dilations = array<i64: 2>, pads_low = array<i64: 1>, pads_high = array<i64: 1>, groups = 2 : i64} : (tensor<2x2x3xf32>, tensor<2x1x2xf32>) -> tensor<2x2x5xf32>
  %e0 = mpt.constant dense<[[[0.0, -2.609375, 0.0, -4.109375, 0.0], [0.0, 0.984375, 0.0, -1.6875, 0.0]], [[0.0, 9.234375, 0.0, 1.453125, 0.0], [0.0, -0.46875, 0.0, 1.5, 0.0]]]> : tensor<2x2x5xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x2x5xf32>
  return
}

func.func @line_weights() {
  %x0 = mpt.constant dense<[[[1.0, -0.75, 0.625, -1.125, -1.625], [-2.125, -0.75, 2.0, -0.625, -0.75]], [[0.5, 2.875, -0.625, 0.5, -0.375], [0.625, -0.375, 0.875, 0.25, 1.125]]]> : tensor<2x2x5xf32>
  %x1 = mpt.constant dense<[[[-0.875, -1.625, -2.75], [-0.625, 2.0, -2.5]], [[-0.625, 2.875, 2.75], [-1.75, -3.0, 1.0]]]> : tensor<2x2x3xf32>
  %y0 = mpt.conv_backward_weights %x0, %x1 {strides = array<i64: 2>, dilations = array<i64: 2>, pads_low = array<i64: 1>, pads_high = array<i64: 1>, groups = 2 : i64} : (tensor<2x2x5xf32>, tensor<2x2x3xf32>) -> tensor<2x1x2xf32>
  %e0 = mpt.constant dense<[[[13.953125, 2.125]], [[1.4375, -0.875]]]> : tensor<2x1x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x1x2xf32>
  return
}

func.func @volume() {
  %x0 = mpt.constant dense<[[[[[-3.0, -1.25, 0.0], [2.25, -2.5, 1.0]], [[0.25, -2.25, 2.125], [2.125, -0.125, 2.75]]]]]> : tensor<1x1x2x2x3xf32>
  %x1 = mpt.constant dense<[[[[[0.625, 2.5]], [[2.875, 0.375]]]]]> : tensor<1x1x2x1x2xf32>
  %y0 = mpt.conv %x0, %x1 {strides = array<i64: 1, 1, 2>, dilations = array<i64: 1, 1, 1>, pads_low = array<i64: 0, 1, 1>, pads_high = array<i64: 0, 1, 0>, groups = 1 : i64} : (tensor<1x1x2x2x3xf32>, tensor<1x1x2x1x2xf32>) -> tensor<1x1x1x4x2xf32>
  %e0 = mpt.constant dense<[[[[[0.0, 0.0], [-7.40625, -6.453125], [6.421875, 1.609375], [0.0, 0.0]]]]]> : tensor<1x1x1x4x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1x1x4x2xf32>
  return
}

func.func @volume_data() {
  %x0 = mpt.constant dense<[[[[[-1.375, -2.125], [0.375, -1.875], [1.5, 2.625], [-1.5, 0.375]]]]]> : tensor<1x1x1x4x2xf32>
  %x1 = mpt.constant dense<[[[[[0.625, 2.5]], [[2.875, 0.375]]]]]> : tensor<1x1x2x1x2xf32>
  %y0 = mpt.conv_backward_data %x0, %x1 {strides = array<i64: 1, 1, 2>, dilations = array<i64: 1, 1, 1>, pads_low = array<i64: 0, 1, 1>, pads_high = array<i64: 0, 1, 0>, groups = 1 : i64} : (tensor<1x1x1x4x2xf32>, tensor<1x1x2x1x2xf32>) -> tensor<1x1x2x2x3xf32>
  %e0 = mpt.constant dense<[[[[[0.9375, -1.171875, -4.6875], [3.75, 1.640625, 6.5625]], [[0.140625, -5.390625, -0.703125], [0.5625, 7.546875, 0.984375]]]]]> : tensor<1x1x2x2x3xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1x2x2x3xf32>
  return
}

func.func @volume_weights() {
  %x0 = mpt.constant dense<[[[[[-3.0, -1.25, 0.0], [2.25, -2.5, 1.0]], [[0.25, -2.25, 2.125], [2.125, -0.125, 2.75]]]]]> : tensor<1x1x2x2x3xf32>
  %x1 = mpt.constant dense<[[[[[-1.375, -2.125], [0.375, -1.875], [1.5, 2.625], [-1.5, 0.375]]]]]> : tensor<1x1x1x4x2xf32>
  %y0 = mpt.conv_backward_weights %x0, %x1 {strides = array<i64: 1, 1, 2>, dilations = array<i64: 1, 1, 1>, pads_low = array<i64: 0, 1, 1>, pads_high = array<i64: 0, 1, 0>, groups = 1 : i64} : (tensor<1x1x2x2x3xf32>, tensor<1x1x1x4x2xf32>) -> tensor<1x1x2x1x2xf32>
  %e0 = mpt.constant dense<[[[[[-4.21875, 4.875]], [[3.890625, 6.515625]]]]]> : tensor<1x1x2x1x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1x2x1x2xf32>
  return
}
