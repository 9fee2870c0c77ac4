// GEMMs with every pair of flags.
func.func @plain(%a: tensor<2x3xf64>, %b: tensor<3x4xf64>) -> tensor<2x4xf64> {
  %y = mpt.matmul %a, %b : (tensor<2x3xf64>, tensor<3x4xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @transpose_a(%a: tensor<3x2xf64>, %b: tensor<3x4xf64>) -> tensor<2x4xf64> {
  %y = mpt.matmul %a, %b {transpose_a = true} : (tensor<3x2xf64>, tensor<3x4xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @transpose_b(%a: tensor<2x3xf64>, %b: tensor<4x3xf64>) -> tensor<2x4xf64> {
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<2x3xf64>, tensor<4x3xf64>) -> tensor<2x4xf64>
  return %y : tensor<2x4xf64>
}
func.func @transpose_both(%a: tensor<2x3x2xf64>, %b: tensor<2x4x3xf64>) -> tensor<2x2x4xf64> {
  %y = mpt.matmul %a, %b {transpose_a = true, transpose_b = true} : (tensor<2x3x2xf64>, tensor<2x4x3xf64>) -> tensor<2x2x4xf64>
  return %y : tensor<2x2x4xf64>
}
