// RUN: mpt-run %s
// Pooling against NumPy.

func.func @max_pool() {
  %x0 = mpt.constant dense<[[[[-2.75, -2.0, -0.75, 2.375], [2.875, 0.875, 0.5, 0.375], [-2.75, -0.75, 3.0, -0.5]], [[-1.75, -1.625, 1.25, -2.875], [2.875, 2.25, 0.375, -0.25], [1.625, 0.25, -0.125, -1.125]]]]> : tensor<1x2x3x4xf32>
  %y0, %y1 = mpt.max_pool %x0 {kernel = array<i64: 2, 2>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x3x4xf32>) -> (tensor<1x2x3x2xf32>, tensor<1x2x3x2xi32>)
  %e0 = mpt.constant dense<[[[[-2.0, 2.375], [2.875, 2.375], [2.875, 3.0]], [[-1.625, 1.25], [2.875, 1.25], [2.875, 0.375]]]]> : tensor<1x2x3x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x2x3x2xf32>
  %e1 = mpt.constant dense<[[[[1, 3], [4, 3], [4, 10]], [[1, 2], [4, 2], [4, 6]]]]> : tensor<1x2x3x2xi32>
  check.equal %y1, %e1 : tensor<1x2x3x2xi32>
  return
}

func.func @max_pool_backward() {
  %x0 = mpt.constant dense<[[[[-0.375, 1.5], [-2.75, -2.875], [1.375, -0.75]], [[1.875, -2.875], [2.5, -2.25], [-0.5, 2.875]]]]> : tensor<1x2x3x2xf32>
  %x1 = mpt.constant dense<[[[[1, 3], [4, 3], [4, 10]], [[1, 2], [4, 2], [4, 6]]]]> : tensor<1x2x3x2xi32>
  %y0 = mpt.max_pool_backward %x0, %x1 {kernel = array<i64: 2, 2>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x3x2xf32>, tensor<1x2x3x2xi32>) -> tensor<1x2x3x4xf32>
  %e0 = mpt.constant dense<[[[[0.0, -0.375, 0.0, -1.375], [-1.375, 0.0, 0.0, 0.0], [0.0, 0.0, -0.75, 0.0]], [[0.0, 1.875, -5.125, 0.0], [2.0, 0.0, 2.875, 0.0], [0.0, 0.0, 0.0, 0.0]]]]> : tensor<1x2x3x4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x2x3x4xf32>
  return
}

func.func @avg_pool() {
  %x0 = mpt.constant dense<[[[[-2.75, -2.0, -0.75, 2.375], [2.875, 0.875, 0.5, 0.375], [-2.75, -0.75, 3.0, -0.5]], [[-1.75, -1.625, 1.25, -2.875], [2.875, 2.25, 0.375, -0.25], [1.625, 0.25, -0.125, -1.125]]]]> : tensor<1x2x3x4xf32>
  %y0 = mpt.avg_pool %x0 {kernel = array<i64: 2, 2>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x2xf32>
  %e0 = mpt.constant dense<[[[[-2.375, 0.8125], [-0.25, 0.625], [0.0625, 0.84375]], [[-1.6875, -0.8125], [0.4375, -0.375], [1.75, -0.28125]]]]> : tensor<1x2x3x2xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<1x2x3x2xf32>
  return
}

func.func @avg_pool_padding() {
  %x0 = mpt.constant dense<[[[[-2.75, -2.0, -0.75, 2.375], [2.875, 0.875, 0.5, 0.375], [-2.75, -0.75, 3.0, -0.5]], [[-1.75, -1.625, 1.25, -2.875], [2.875, 2.25, 0.375, -0.25], [1.625, 0.25, -0.125, -1.125]]]]> : tensor<1x2x3x4xf32>
  %y0 = mpt.avg_pool %x0 {kernel = array<i64: 2, 2>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 0>, count_include_pad = true} : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x2xf32>
  %e0 = mpt.constant dense<[[[[-1.1875, 0.40625], [-0.25, 0.625], [0.0625, 0.84375]], [[-0.84375, -0.40625], [0.4375, -0.375], [1.75, -0.28125]]]]> : tensor<1x2x3x2xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<1x2x3x2xf32>
  return
}

func.func @avg_pool_backward() {
  %x0 = mpt.constant dense<[[[[-0.375, 1.5], [-2.75, -2.875], [1.375, -0.75]], [[1.875, -2.875], [2.5, -2.25], [-0.5, 2.875]]]]> : tensor<1x2x3x2xf32>
  %y0 = mpt.avg_pool_backward %x0 {kernel = array<i64: 2, 2>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x3x2xf32>) -> tensor<1x2x3x4xf32>
  %e0 = mpt.constant dense<[[[[-0.875, -0.875, 0.03125, 0.03125], [-0.34375, -0.34375, -0.90625, -0.90625], [0.34375, 0.34375, -0.1875, -0.1875]], [[1.5625, 1.5625, -2.0, -2.0], [0.5, 0.5, 0.15625, 0.15625], [-0.125, -0.125, 0.71875, 0.71875]]]]> : tensor<1x2x3x4xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<1x2x3x4xf32>
  return
}

// The last NaN of a window, and the first -inf of one that has nothing else.
func.func @max_pool_special() {
  %x0 = mpt.constant dense<[[[0x7FC00000, 1.0, 0x7FC00000, 2.0, 0xFF800000, 0xFF800000]]]> : tensor<1x1x6xf32>
  %y0, %y1 = mpt.max_pool %x0 {kernel = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 2>, pads_low = array<i64: 0>, pads_high = array<i64: 0>} : (tensor<1x1x6xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xi32>)
  %e0 = mpt.constant dense<[[[0x7FC00000, 0x7FC00000]]]> : tensor<1x1x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1x2xf32>
  %e1 = mpt.constant dense<[[[2, 2]]]> : tensor<1x1x2xi32>
  check.equal %y1, %e1 : tensor<1x1x2xi32>
  %y2, %y3 = mpt.max_pool %x0 {kernel = array<i64: 2>, strides = array<i64: 4>, dilations = array<i64: 1>, pads_low = array<i64: 0>, pads_high = array<i64: 0>} : (tensor<1x1x6xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xi32>)
  %e3 = mpt.constant dense<[[[0, 4]]]> : tensor<1x1x2xi32>
  check.equal %y3, %e3 : tensor<1x1x2xi32>
  return
}
