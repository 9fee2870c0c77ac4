// RUN: mpt-run %s
// Scatters against NumPy: bit-equal.

func.func @scatter_add() {
  %x0 = mpt.constant dense<[2, 0, 2]> : tensor<3xi64>
  %x1 = mpt.constant dense<[[-0.625, -1.0, -1.125], [2.75, 2.25, 0.5]]> : tensor<2x3xf32>
  %y0 = mpt.scatter_add %x0, %x1 {axis = 1 : i64} : (tensor<3xi64>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[-1.0, 0.0, -1.75], [2.25, 0.0, 3.25]]> : tensor<2x3xf32>
  check.equal %y0, %e0 : tensor<2x3xf32>
  return
}

func.func @scatter_elements_assign() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[0, -1], [1, 0]]> : tensor<2x2xi64>
  %x2 = mpt.constant dense<[[3.0, -1.0], [-2.25, -1.375]]> : tensor<2x2xf32>
  %y0 = mpt.scatter_elements %x0, %x1, %x2 {axis = 0 : i64, kind = #mpt<scatter_kind assign>} : (tensor<3x2xf32>, tensor<2x2xi64>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[3.0, -1.375], [-2.25, -0.875], [-2.375, -1.0]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @scatter_elements_add() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[0, -1], [1, 0]]> : tensor<2x2xi64>
  %x2 = mpt.constant dense<[[3.0, -1.0], [-2.25, -1.375]]> : tensor<2x2xf32>
  %y0 = mpt.scatter_elements %x0, %x1, %x2 {axis = 0 : i64, kind = #mpt<scatter_kind add>} : (tensor<3x2xf32>, tensor<2x2xi64>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[1.125, -3.25], [0.25, -0.875], [-2.375, -3.0]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @scatter_elements_mul() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[0, -1], [1, 0]]> : tensor<2x2xi64>
  %x2 = mpt.constant dense<[[3.0, -1.0], [-2.25, -1.375]]> : tensor<2x2xf32>
  %y0 = mpt.scatter_elements %x0, %x1, %x2 {axis = 0 : i64, kind = #mpt<scatter_kind mul>} : (tensor<3x2xf32>, tensor<2x2xi64>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[-5.625, 2.578125], [-5.625, -0.875], [-2.375, 2.0]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @scatter_elements_min() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[0, -1], [1, 0]]> : tensor<2x2xi64>
  %x2 = mpt.constant dense<[[3.0, -1.0], [-2.25, -1.375]]> : tensor<2x2xf32>
  %y0 = mpt.scatter_elements %x0, %x1, %x2 {axis = 0 : i64, kind = #mpt<scatter_kind min>} : (tensor<3x2xf32>, tensor<2x2xi64>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[-1.875, -1.875], [-2.25, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @scatter_elements_max() {
  %x0 = mpt.constant dense<[[-1.875, -1.875], [2.5, -0.875], [-2.375, -2.0]]> : tensor<3x2xf32>
  %x1 = mpt.constant dense<[[0, -1], [1, 0]]> : tensor<2x2xi64>
  %x2 = mpt.constant dense<[[3.0, -1.0], [-2.25, -1.375]]> : tensor<2x2xf32>
  %y0 = mpt.scatter_elements %x0, %x1, %x2 {axis = 0 : i64, kind = #mpt<scatter_kind max>} : (tensor<3x2xf32>, tensor<2x2xi64>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %e0 = mpt.constant dense<[[3.0, -1.375], [2.5, -0.875], [-2.375, -1.0]]> : tensor<3x2xf32>
  check.equal %y0, %e0 : tensor<3x2xf32>
  return
}

func.func @scatter_nd() {
  %x0 = mpt.constant dense<[1.625, 1.5, 0.5, 0.5]> : tensor<4xf32>
  %x1 = mpt.constant dense<[[1], [3], [1]]> : tensor<3x1xi64>
  %x2 = mpt.constant dense<[2.0, -0.5, 2.75]> : tensor<3xf32>
  %y0 = mpt.scatter_nd %x0, %x1, %x2 {kind = #mpt<scatter_kind add>} : (tensor<4xf32>, tensor<3x1xi64>, tensor<3xf32>) -> tensor<4xf32>
  %e0 = mpt.constant dense<[1.625, 6.25, 0.5, 0.0]> : tensor<4xf32>
  check.equal %y0, %e0 : tensor<4xf32>
  return
}
