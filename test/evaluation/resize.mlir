// RUN: mpt-run %s
// Resampling against NumPy.

func.func @resize() {
  %x0 = mpt.constant dense<[[[-2.375, 1.0, 1.375]]]> : tensor<1x1x3xf32>
  %y0 = mpt.resize %x0 {axes = array<i64: 2>, taps = array<i64: 2>, positions = [array<i64: 0, 0, 0, 1, 1, 2, 2, 2>], weights = [array<f64: 0.75, 0.25, 0.5, 0.5, 0.25, 0.75, 1.0, 0.0>]} : (tensor<1x1x3xf32>) -> tensor<1x1x4xf32>
  %e0 = mpt.constant dense<[[[-2.375, -0.6875, 1.28125, 1.375]]]> : tensor<1x1x4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1x4xf32>
  return
}

func.func @resize_backward() {
  %x0 = mpt.constant dense<[[[-0.5, -2.625, 0.125, -0.375]]]> : tensor<1x1x4xf32>
  %y0 = mpt.resize_backward %x0 {axes = array<i64: 2>, taps = array<i64: 2>, positions = [array<i64: 0, 0, 0, 1, 1, 2, 2, 2>], weights = [array<f64: 0.75, 0.25, 0.5, 0.5, 0.25, 0.75, 1.0, 0.0>]} : (tensor<1x1x4xf32>) -> tensor<1x1x3xf32>
  %e0 = mpt.constant dense<[[[-1.8125, -1.28125, -0.28125]]]> : tensor<1x1x3xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1x3xf32>
  return
}
