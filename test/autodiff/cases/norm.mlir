// Normalizations and softmax. Cases that return statistics take the way through the decomposition.
func.func @batch_norm(%x: tensor<3x2x2xf64>, %s: tensor<2xf64>, %b: tensor<2xf64>) -> tensor<3x2x2xf64> {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-3} : (tensor<3x2x2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<3x2x2xf64>, tensor<2xf64>, tensor<2xf64>)
  return %y : tensor<3x2x2xf64>
}
func.func @batch_norm_statistics(%x: tensor<3x2x2xf64>, %s: tensor<2xf64>, %b: tensor<2xf64>) -> (tensor<3x2x2xf64>, tensor<2xf64>, tensor<2xf64>) {
  %y, %m, %v = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-3} : (tensor<3x2x2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<3x2x2xf64>, tensor<2xf64>, tensor<2xf64>)
  return %y, %m, %v : tensor<3x2x2xf64>, tensor<2xf64>, tensor<2xf64>
}
func.func @layer_norm(%x: tensor<2x2x3xf64>, %s: tensor<3xf64>, %b: tensor<3xf64>) -> tensor<2x2x3xf64> {
  %y, %m, %i = mpt.layer_norm %x, %s, %b {axis = 2, epsilon = 1.0e-3} : (tensor<2x2x3xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<2x2x3xf64>, tensor<2x2xf64>, tensor<2x2xf64>)
  return %y : tensor<2x2x3xf64>
}
func.func @layer_norm_statistics(%x: tensor<2x2x3xf64>, %s: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> (tensor<2x2x3xf64>, tensor<2xf64>) {
  %y, %m, %i = mpt.layer_norm %x, %s, %b {axis = 1, epsilon = 1.0e-3} : (tensor<2x2x3xf64>, tensor<2x3xf64>, tensor<2x3xf64>) -> (tensor<2x2x3xf64>, tensor<2xf64>, tensor<2xf64>)
  return %y, %i : tensor<2x2x3xf64>, tensor<2xf64>
}
func.func @rms_norm(%x: tensor<2x2x3xf64>, %s: tensor<3xf64>) -> tensor<2x2x3xf64> {
  %y, %i = mpt.rms_norm %x, %s {axis = 2, epsilon = 1.0e-3} : (tensor<2x2x3xf64>, tensor<3xf64>) -> (tensor<2x2x3xf64>, tensor<2x2xf64>)
  return %y : tensor<2x2x3xf64>
}
func.func @rms_norm_statistics(%x: tensor<2x3xf64>, %s: tensor<3xf64>) -> (tensor<2x3xf64>, tensor<2xf64>) {
  %y, %i = mpt.rms_norm %x, %s {axis = 1, epsilon = 1.0e-3} : (tensor<2x3xf64>, tensor<3xf64>) -> (tensor<2x3xf64>, tensor<2xf64>)
  return %y, %i : tensor<2x3xf64>, tensor<2xf64>
}
func.func @group_norm(%x: tensor<2x4x3xf64>, %s: tensor<4xf64>, %b: tensor<4xf64>) -> tensor<2x4x3xf64> {
  %y, %m, %i = mpt.group_norm %x, %s, %b {groups = 2, epsilon = 1.0e-3} : (tensor<2x4x3xf64>, tensor<4xf64>, tensor<4xf64>) -> (tensor<2x4x3xf64>, tensor<2x2xf64>, tensor<2x2xf64>)
  return %y : tensor<2x4x3xf64>
}
func.func @softmax(%x: tensor<2x3x2xf64>) -> tensor<2x3x2xf64> {
  %y = mpt.softmax %x {axis = 1} : (tensor<2x3x2xf64>) -> tensor<2x3x2xf64>
  return %y : tensor<2x3x2xf64>
}
func.func @log_softmax(%x: tensor<2x3x2xf64>) -> tensor<2x3x2xf64> {
  %y = mpt.log_softmax %x {axis = 1} : (tensor<2x3x2xf64>) -> tensor<2x3x2xf64>
  return %y : tensor<2x3x2xf64>
}
