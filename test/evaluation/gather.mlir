// RUN: mpt-run %s
// Gathers against NumPy: bit-equal.

func.func @gather() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[2, -1], [0, 1]]> : tensor<2x2xi64>
  %y0 = mpt.gather %x0, %x1 {axis = 0 : i64} : (tensor<3x2xf32>, tensor<2x2xi64>) -> tensor<2x2x2xf32>
  %e0 = mpt.constant dense<[[[-2.375, -2.0], [-2.375, -2.0]], [[-1.875, -1.875], [2.5, -0.875]]]> : tensor<2x2x2xf32>
  check.equal %y0, %e0 : tensor<2x2x2xf32>
  return
}

func.func @gather_elements() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[0, -1], [1, 0]]> : tensor<2x2xi64>
  %y0 = mpt.gather_elements %x0, %x1 {axis = 0 : i64} : (tensor<3x2xf32>, tensor<2x2xi64>) -> tensor<2x2xf32>
  %e0 = mpt.constant dense<[[-1.875, -2.0], [2.5, -1.875]]> : tensor<2x2xf32>
  check.equal %y0, %e0 : tensor<2x2xf32>
  return
}

func.func @gather_nd() {
  %x0 = mpt.constant dense<[[[-2.5, 2.75], [-1.75, -0.375], [-1.875, 3.0]], [[-2.125, 0.125], [2.75, 0.125], [2.5, 2.375]]]> : tensor<2x3x2xf32>
  %x1 = mpt.constant dense<[[1, 2], [0, 0]]> : tensor<2x2xi64>
  %y0 = mpt.gather_nd %x0, %x1 : (tensor<2x3x2xf32>, tensor<2x2xi64>) -> tensor<2x2xf32>
  %e0 = mpt.constant dense<[[2.5, 2.375], [-2.5, 2.75]]> : tensor<2x2xf32>
  check.equal %y0, %e0 : tensor<2x2xf32>
  return
}

func.func @gather_nd_batch() {
  %x0 = mpt.constant dense<[[[-2.5, 2.75], [-1.75, -0.375], [-1.875, 3.0]], [[-2.125, 0.125], [2.75, 0.125], [2.5, 2.375]]]> : tensor<2x3x2xf32>
  %x1 = mpt.constant dense<[[2], [1]]> : tensor<2x1xi64>
  %y0 = mpt.gather_nd %x0, %x1 {batch_dims = 1 : i64} : (tensor<2x3x2xf32>, tensor<2x1xi64>) -> tensor<2x2xf32>
  %e0 = mpt.constant dense<[[-1.875, 3.0], [2.75, 0.125]]> : tensor<2x2xf32>
  check.equal %y0, %e0 : tensor<2x2xf32>
  return
}

// A boundary belongs to the numbers above it; NaN is above none.
func.func @bucketize() {
  %x = mpt.constant dense<[[-9.0, -1.0, -0.5], [0.0, 2.0, 0x7FC00000]]> : tensor<2x3xf32>
  %b = mpt.constant dense<[-1.0, 0.0, 2.0]> : tensor<3xf32>
  %y = mpt.bucketize %x, %b : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xui8>
  %e = mpt.constant dense<[[0, 1, 1], [2, 3, 0]]> : tensor<2x3xui8>
  check.equal %y, %e : tensor<2x3xui8>
  return
}
