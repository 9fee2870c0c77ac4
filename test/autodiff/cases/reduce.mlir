// Reductions over one and several axes.
func.func @sum(%x: tensor<2x3x2xf64>) -> tensor<3xf64> {
  %y = mpt.reduce sum %x {axes = array<i64: 0, 2>} : (tensor<2x3x2xf64>) -> tensor<3xf64>
  return %y : tensor<3xf64>
}
func.func @mean(%x: tensor<2x3x2xf64>) -> tensor<2x2xf64> {
  %y = mpt.reduce mean %x {axes = array<i64: 1>} : (tensor<2x3x2xf64>) -> tensor<2x2xf64>
  return %y : tensor<2x2xf64>
}
func.func @max(%x: tensor<2x3x2xf64>) -> tensor<3xf64> {
  %y = mpt.reduce max %x {axes = array<i64: 0, 2>} : (tensor<2x3x2xf64>) -> tensor<3xf64>
  return %y : tensor<3xf64>
}
func.func @min(%x: tensor<2x3x2xf64>) -> tensor<f64> {
  %y = mpt.reduce min %x {axes = array<i64: 0, 1, 2>} : (tensor<2x3x2xf64>) -> tensor<f64>
  return %y : tensor<f64>
}
func.func @prod(%x: tensor<2x3xf64>) -> tensor<2xf64> {
  %y = mpt.reduce prod %x {axes = array<i64: 1>} : (tensor<2x3xf64>) -> tensor<2xf64>
  return %y : tensor<2xf64>
}
// One zero in the first row, two in the second.
func.func @prod_zeros(%x: tensor<2x3xf64>) -> tensor<2xf64> {
  %mask = mpt.constant dense<[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]> : tensor<2x3xf64>
  %z = mpt.mul %x, %mask : tensor<2x3xf64>
  %y = mpt.reduce prod %z {axes = array<i64: 1>} : (tensor<2x3xf64>) -> tensor<2xf64>
  return %y : tensor<2xf64>
}
func.func @cum_sum(%x: tensor<2x4xf64>) -> tensor<2x4xf64> {
  %y = mpt.cum_sum %x {axis = 1} : (tensor<2x4xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @cum_sum_exclusive_reverse(%x: tensor<2x4xf64>) -> tensor<2x4xf64> {
  %y = mpt.cum_sum %x {axis = 1, exclusive = true, reverse = true} : (tensor<2x4xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
