// Data movement.
func.func @reshape(%x: tensor<2x3xf64>) -> tensor<6xf64> {
  %y = mpt.reshape %x : (tensor<2x3xf64>) -> tensor<6xf64>
  return %y : tensor<6xf64>
}
func.func @transpose(%x: tensor<2x3x4xf64>) -> tensor<4x2x3xf64> {
  %y = mpt.transpose %x {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xf64>) -> tensor<4x2x3xf64>
  return %y : tensor<4x2x3xf64>
}
func.func @broadcast(%x: tensor<1x3xf64>) -> tensor<2x4x3xf64> {
  %y = mpt.broadcast %x {dims = array<i64: 1, 2>} : (tensor<1x3xf64>) -> tensor<2x4x3xf64>
  return %y : tensor<2x4x3xf64>
}
func.func @concat(%a: tensor<2x2xf64>, %b: tensor<2x3xf64>) -> tensor<2x7xf64> {
  %y = mpt.concat %a, %b, %a {axis = 1} : (tensor<2x2xf64>, tensor<2x3xf64>, tensor<2x2xf64>) -> tensor<2x7xf64>
  return %y : tensor<2x7xf64>
}
func.func @slice(%x: tensor<4x7xf64>) -> tensor<2x3xf64> {
  %y = mpt.slice %x {starts = array<i64: 1, 1>, sizes = array<i64: 2, 3>, strides = array<i64: 1, 2>} : (tensor<4x7xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @pad(%x: tensor<2x3xf64>) -> tensor<4x8xf64> {
  %y = mpt.pad %x {low = array<i64: 2, 1>, high = array<i64: 0, 2>, interior = array<i64: 0, 1>, value = 0.5} : (tensor<2x3xf64>) -> tensor<4x8xf64>
  return %y : tensor<4x8xf64>
}
func.func @crop(%x: tensor<4x5xf64>) -> tensor<3x7xf64> {
  %y = mpt.pad %x {low = array<i64: -1, -2>, high = array<i64: 0, 0>, interior = array<i64: 0, 1>, value = 0.0} : (tensor<4x5xf64>) -> tensor<3x7xf64>
  return %y : tensor<3x7xf64>
}
func.func @reverse(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.reverse %x {axes = array<i64: 1>} : (tensor<2x3xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
