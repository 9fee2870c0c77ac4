// RUN: mpt-run %s
// Reductions against NumPy; values over 8, so that sums are exact.

func.func @sum() {
  %x0 = mpt.constant dense<[[[2.25, 1.125], [-1.0, -2.75], [0.5, -1.375]], [[1.125, 2.25], [-0.875, 2.5], [0.125, 0.25]]]> : tensor<2x3x2xf32>
  %y0 = mpt.reduce sum %x0 {axes = array<i64: 0, 2>} : (tensor<2x3x2xf32>) -> tensor<3xf32>
  %e0 = mpt.constant dense<[6.75, -2.125, -0.5]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<3xf32>
  return
}

func.func @mean() {
  %x0 = mpt.constant dense<[[[2.25, 1.125], [-1.0, -2.75], [0.5, -1.375]], [[1.125, 2.25], [-0.875, 2.5], [0.125, 0.25]]]> : tensor<2x3x2xf32>
  %y0 = mpt.reduce mean %x0 {axes = array<i64: 0, 2>} : (tensor<2x3x2xf32>) -> tensor<3xf32>
  %e0 = mpt.constant dense<[1.6875, -0.53125, -0.125]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<3xf32>
  return
}

func.func @max() {
  %x0 = mpt.constant dense<[[[2.25, 1.125], [-1.0, -2.75], [0.5, -1.375]], [[1.125, 2.25], [-0.875, 2.5], [0.125, 0.25]]]> : tensor<2x3x2xf32>
  %y0 = mpt.reduce max %x0 {axes = array<i64: 0, 2>} : (tensor<2x3x2xf32>) -> tensor<3xf32>
  %e0 = mpt.constant dense<[2.25, 2.5, 0.5]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<3xf32>
  return
}

func.func @min() {
  %x0 = mpt.constant dense<[[[2.25, 1.125], [-1.0, -2.75], [0.5, -1.375]], [[1.125, 2.25], [-0.875, 2.5], [0.125, 0.25]]]> : tensor<2x3x2xf32>
  %y0 = mpt.reduce min %x0 {axes = array<i64: 0, 2>} : (tensor<2x3x2xf32>) -> tensor<3xf32>
  %e0 = mpt.constant dense<[1.125, -2.75, -1.375]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<3xf32>
  return
}

func.func @prod() {
  %x0 = mpt.constant dense<[[[2.25, 1.125], [-1.0, -2.75], [0.5, -1.375]], [[1.125, 2.25], [-0.875, 2.5], [0.125, 0.25]]]> : tensor<2x3x2xf32>
  %y0 = mpt.reduce prod %x0 {axes = array<i64: 0, 2>} : (tensor<2x3x2xf32>) -> tensor<3xf32>
  %e0 = mpt.constant dense<[6.4072266, -6.015625, -0.021484375]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<3xf32>
  return
}

func.func @all_axes() {
  %x0 = mpt.constant dense<[[[2.25, 1.125], [-1.0, -2.75], [0.5, -1.375]], [[1.125, 2.25], [-0.875, 2.5], [0.125, 0.25]]]> : tensor<2x3x2xf32>
  %y0 = mpt.reduce sum %x0 {axes = array<i64: 0, 1, 2>} : (tensor<2x3x2xf32>) -> tensor<f32>
  %e0 = mpt.constant dense<4.125> : tensor<f32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<f32>
  return
}

func.func @max_nan() {
  %x0 = mpt.constant dense<[[1.0, 0x7FC00000], [2.0, -1.0]]> : tensor<2x2xf32>
  %y0 = mpt.reduce max %x0 {axes = array<i64: 1>} : (tensor<2x2xf32>) -> tensor<2xf32>
  %e0 = mpt.constant dense<[0x7FC00000, 2.0]> : tensor<2xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<2xf32>
  return
}

func.func @int_sum() {
  %x0 = mpt.constant dense<[[3, -5], [7, 2]]> : tensor<2x2xi64>
  %y0 = mpt.reduce sum %x0 {axes = array<i64: 0>} : (tensor<2x2xi64>) -> tensor<2xi64>
  %e0 = mpt.constant dense<[10, -3]> : tensor<2xi64>
  check.equal %y0, %e0 : tensor<2xi64>
  return
}

func.func @int_max() {
  %x0 = mpt.constant dense<[[3, -5], [7, 2]]> : tensor<2x2xi64>
  %y0 = mpt.reduce max %x0 {axes = array<i64: 0>} : (tensor<2x2xi64>) -> tensor<2xi64>
  %e0 = mpt.constant dense<[7, 2]> : tensor<2xi64>
  check.equal %y0, %e0 : tensor<2xi64>
  return
}

func.func @int_min() {
  %x0 = mpt.constant dense<[[3, -5], [7, 2]]> : tensor<2x2xi64>
  %y0 = mpt.reduce min %x0 {axes = array<i64: 0>} : (tensor<2x2xi64>) -> tensor<2xi64>
  %e0 = mpt.constant dense<[3, -5]> : tensor<2xi64>
  check.equal %y0, %e0 : tensor<2xi64>
  return
}

func.func @int_prod() {
  %x0 = mpt.constant dense<[[3, -5], [7, 2]]> : tensor<2x2xi64>
  %y0 = mpt.reduce prod %x0 {axes = array<i64: 0>} : (tensor<2x2xi64>) -> tensor<2xi64>
  %e0 = mpt.constant dense<[21, -10]> : tensor<2xi64>
  check.equal %y0, %e0 : tensor<2xi64>
  return
}

func.func @half_wide_sum() {
  %x0 = mpt.constant dense<[2048.0, 1.0, 1.0, 1.0, 1.0]> : tensor<5xf16>
  %y0 = mpt.reduce sum %x0 {axes = array<i64: 0>} : (tensor<5xf16>) -> tensor<f16>
  %e0 = mpt.constant dense<2052.0> : tensor<f16>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<f16>
  return
}

func.func @half_narrow_sum() {
  %x0 = mpt.constant dense<[2048.0, 1.0, 1.0, 1.0, 1.0]> : tensor<5xf16>
  %y0 = mpt.reduce sum %x0 {axes = array<i64: 0>, numerics = #mpt.numerics<in = f16, acc = f16, out = f16>} : (tensor<5xf16>) -> tensor<f16>
  %e0 = mpt.constant dense<2048.0> : tensor<f16>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<f16>
  return
}

func.func @arg_max() {
  %x0 = mpt.constant dense<[[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]> : tensor<2x3xf32>
  %y0 = mpt.arg_reduce %x0 {kind = #mpt<reduce_kind max>, axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2xi64>
  %e0 = mpt.constant dense<[1, 0]> : tensor<2xi64>
  check.equal %y0, %e0 : tensor<2xi64>
  return
}

func.func @arg_max_last() {
  %x0 = mpt.constant dense<[[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]> : tensor<2x3xf32>
  %y0 = mpt.arg_reduce %x0 {kind = #mpt<reduce_kind max>, axis = 1 : i64, last = true} : (tensor<2x3xf32>) -> tensor<2xi64>
  %e0 = mpt.constant dense<2> : tensor<2xi64>
  check.equal %y0, %e0 : tensor<2xi64>
  return
}

func.func @arg_min() {
  %x0 = mpt.constant dense<[[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]> : tensor<2x3xf32>
  %y0 = mpt.arg_reduce %x0 {kind = #mpt<reduce_kind min>, axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<3xi64>
  %e0 = mpt.constant dense<[0, 1, 1]> : tensor<3xi64>
  check.equal %y0, %e0 : tensor<3xi64>
  return
}

func.func @cum_sum() {
  %x0 = mpt.constant dense<[[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]> : tensor<2x3xf32>
  %y0 = mpt.cum_sum %x0 {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[1.0, 4.0, 7.0], [2.0, 2.0, 4.0]]> : tensor<2x3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<2x3xf32>
  return
}

func.func @cum_sum_exclusive() {
  %x0 = mpt.constant dense<[[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]> : tensor<2x3xf32>
  %y0 = mpt.cum_sum %x0 {axis = 1 : i64, exclusive = true} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[0.0, 1.0, 4.0], [0.0, 2.0, 2.0]]> : tensor<2x3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<2x3xf32>
  return
}

func.func @cum_sum_reverse() {
  %x0 = mpt.constant dense<[[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]> : tensor<2x3xf32>
  %y0 = mpt.cum_sum %x0 {axis = 1 : i64, reverse = true} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[7.0, 6.0, 3.0], [4.0, 2.0, 2.0]]> : tensor<2x3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<2x3xf32>
  return
}
