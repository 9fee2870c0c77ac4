// RUN: mpt-run %s
// Matrix multiplications against NumPy; small integers over 8, so that every sum is exact.

func.func @plain() {
  %x0 = mpt.constant dense<[[2.75, 0.75, 1.125], [2.375, 0.5, 1.75]]> : tensor<2x3xf32>
  %x1 = mpt.constant dense<[[2.0, -1.625, -2.75, -1.25], [-1.375, 2.25, 2.5, -3.0], [0.0, 2.0, -2.25, 1.875]]> : tensor<3x4xf32>
  %y0 = mpt.matmul %x0, %x1 : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %e0 = mpt.constant dense<[[4.46875, -0.53125, -8.21875, -3.578125], [4.0625, 0.765625, -9.21875, -1.1875]]> : tensor<2x4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x4xf32>
  return
}

func.func @transposed() {
  %x0 = mpt.constant dense<[[2.75, 2.375], [0.75, 0.5], [1.125, 1.75]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[2.0, -1.375, 0.0], [-1.625, 2.25, 2.0], [-2.75, 2.5, -2.25], [-1.25, -3.0, 1.875]]> : tensor<4x3xf32>
  %y0 = mpt.matmul %x0, %x1 {transpose_a = true, transpose_b = true} : (tensor<3x2xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  %e0 = mpt.constant dense<[[4.46875, -0.53125, -8.21875, -3.578125], [4.0625, 0.765625, -9.21875, -1.1875]]> : tensor<2x4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x4xf32>
  return
}

func.func @batched() {
  %x0 = mpt.constant dense<[[[[-2.375, -0.25, 2.0]], [[-1.25, -1.0, -1.375]]], [[[1.375, -1.5, 3.0]], [[-0.375, -0.125, 0.0]]]]> : tensor<2x2x1x3xf32>
  %x1 = mpt.constant dense<[[[[0.5, 0.375], [0.0, 3.0], [1.875, 1.75]], [[1.25, 0.75], [-1.0, 3.0], [-0.25, -1.75]]], [[[2.125, -2.125], [2.25, 0.75], [-2.375, -2.75]], [[-0.375, -2.875], [-2.25, 0.125], [2.875, -0.25]]]]> : tensor<2x2x3x2xf32>
  %y0 = mpt.matmul %x0, %x1 : (tensor<2x2x1x3xf32>, tensor<2x2x3x2xf32>) -> tensor<2x2x1x2xf32>
  %e0 = mpt.constant dense<[[[[2.5625, 1.859375]], [[-0.21875, -1.53125]]], [[[-7.578125, -12.296875]], [[0.421875, 1.0625]]]]> : tensor<2x2x1x2xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<2x2x1x2xf32>
  return
}

func.func @half() {
  %x0 = mpt.constant dense<[[2048.0, 1.0, 1.0]]> : tensor<1x3xf16>
  %x1 = mpt.constant dense<1.0> : tensor<3x1xf16>
  %y0 = mpt.matmul %x0, %x1 : (tensor<1x3xf16>, tensor<3x1xf16>) -> tensor<1x1xf16>
  %e0 = mpt.constant dense<[[2050.0]]> : tensor<1x1xf16>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<1x1xf16>
  return
}
