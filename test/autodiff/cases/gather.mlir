// Gathers and scatters; indices repeat, and count from the end where that is allowed.
func.func @gather(%x: tensor<2x4xf64>) -> tensor<2x3x2xf64> {
  %i = mpt.constant dense<[[0, 3], [-1, 0], [2, 2]]> : tensor<3x2xi64>
  %y = mpt.gather %x, %i {axis = 1} : (tensor<2x4xf64>, tensor<3x2xi64>) -> tensor<2x3x2xf64>
  return %y : tensor<2x3x2xf64>
}
func.func @scatter_add(%u: tensor<2x3xf64>) -> tensor<2x4xf64> {
  %i = mpt.constant dense<[3, 0, 3]> : tensor<3xi64>
  %y = mpt.scatter_add %i, %u {axis = 1} : (tensor<3xi64>, tensor<2x3xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @gather_elements(%x: tensor<2x4xf64>) -> tensor<2x3xf64> {
  %i = mpt.constant dense<[[0, 3, 0], [-1, 2, 1]]> : tensor<2x3xi64>
  %y = mpt.gather_elements %x, %i {axis = 1} : (tensor<2x4xf64>, tensor<2x3xi64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @scatter_elements(%x: tensor<2x4xf64>, %u: tensor<2x2xf64>) -> tensor<2x4xf64> {
  %i = mpt.constant dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 1} : (tensor<2x4xf64>, tensor<2x2xi64>, tensor<2x2xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @scatter_elements_add(%x: tensor<2x4xf64>, %u: tensor<2x2xf64>) -> tensor<2x4xf64> {
  %i = mpt.constant dense<[[0, 0], [1, 2]]> : tensor<2x2xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 1, kind = #mpt<scatter_kind add>} : (tensor<2x4xf64>, tensor<2x2xi64>, tensor<2x2xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @gather_nd(%x: tensor<2x3x2xf64>) -> tensor<2x2xf64> {
  %i = mpt.constant dense<[[1, 2], [1, 2]]> : tensor<2x2xi64>
  %y = mpt.gather_nd %x, %i : (tensor<2x3x2xf64>, tensor<2x2xi64>) -> tensor<2x2xf64>
  return %y : tensor<2x2xf64>
}
func.func @gather_nd_batched(%x: tensor<2x3x2xf64>) -> tensor<2x2x2xf64> {
  %i = mpt.constant dense<[[[1], [0]], [[2], [2]]]> : tensor<2x2x1xi64>
  %y = mpt.gather_nd %x, %i {batch_dims = 1} : (tensor<2x3x2xf64>, tensor<2x2x1xi64>) -> tensor<2x2x2xf64>
  return %y : tensor<2x2x2xf64>
}
func.func @scatter_nd(%x: tensor<4x2xf64>, %u: tensor<2x2xf64>) -> tensor<4x2xf64> {
  %i = mpt.constant dense<[[3], [1]]> : tensor<2x1xi64>
  %y = mpt.scatter_nd %x, %i, %u : (tensor<4x2xf64>, tensor<2x1xi64>, tensor<2x2xf64>) -> tensor<4x2xf64>
  return %y : tensor<4x2xf64>
}
func.func @scatter_nd_add(%x: tensor<4x2xf64>, %u: tensor<2x2xf64>) -> tensor<4x2xf64> {
  %i = mpt.constant dense<[[3], [3]]> : tensor<2x1xi64>
  %y = mpt.scatter_nd %x, %i, %u {kind = #mpt<scatter_kind add>} : (tensor<4x2xf64>, tensor<2x1xi64>, tensor<2x2xf64>) -> tensor<4x2xf64>
  return %y : tensor<4x2xf64>
}
func.func @scatter_elements_max(%x: tensor<2x4xf64>, %u: tensor<2x3xf64>) -> tensor<2x4xf64> {
  %i = mpt.constant dense<[[0, 0, 3], [1, -1, 3]]> : tensor<2x3xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 1, kind = #mpt<scatter_kind max>} : (tensor<2x4xf64>, tensor<2x3xi64>, tensor<2x3xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @scatter_elements_mul(%x: tensor<2x4xf64>, %u: tensor<2x3xf64>) -> tensor<2x4xf64> {
  %i = mpt.constant dense<[[0, 0, 3], [1, -1, 3]]> : tensor<2x3xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 1, kind = #mpt<scatter_kind mul>} : (tensor<2x4xf64>, tensor<2x3xi64>, tensor<2x3xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
// Zeros, made so that they stay zeros when an input moves: one alone at position 0, two at position 2.
func.func @scatter_elements_mul_zeros(%x: tensor<3xf64>, %u: tensor<3xf64>) -> tensor<3xf64> {
  %i = mpt.constant dense<[0, 0, 2]> : tensor<3xi64>
  %some = mpt.constant dense<[1.0, 1.0, 0.0]> : tensor<3xf64>
  %few = mpt.constant dense<[1.0, 0.0, 0.0]> : tensor<3xf64>
  %data = mpt.mul %x, %some : tensor<3xf64>
  %updates = mpt.mul %u, %few : tensor<3xf64>
  %y = mpt.scatter_elements %data, %i, %updates {axis = 0, kind = #mpt<scatter_kind mul>} : (tensor<3xf64>, tensor<3xi64>, tensor<3xf64>) -> tensor<3xf64>
  return %y : tensor<3xf64>
}
func.func @scatter_nd_min(%x: tensor<4x2xf64>, %u: tensor<3x2xf64>) -> tensor<4x2xf64> {
  %i = mpt.constant dense<[[3], [3], [0]]> : tensor<3x1xi64>
  %y = mpt.scatter_nd %x, %i, %u {kind = #mpt<scatter_kind min>} : (tensor<4x2xf64>, tensor<3x1xi64>, tensor<3x2xf64>) -> tensor<4x2xf64>
  return %y : tensor<4x2xf64>
}
func.func @scatter_nd_mul(%x: tensor<4x2xf64>, %u: tensor<3x2xf64>) -> tensor<4x2xf64> {
  %i = mpt.constant dense<[[3], [3], [0]]> : tensor<3x1xi64>
  %y = mpt.scatter_nd %x, %i, %u {kind = #mpt<scatter_kind mul>} : (tensor<4x2xf64>, tensor<3x1xi64>, tensor<3x2xf64>) -> tensor<4x2xf64>
  return %y : tensor<4x2xf64>
}
