// Backward ops of the norm family as forward ops: through their decompositions.
func.func @batch_norm_backward(%dy: tensor<3x2xf64>, %x: tensor<3x2xf64>, %s: tensor<2xf64>, %m: tensor<2xf64>, %v: tensor<2xf64> {check.low = 0.5, check.high = 2.0}) -> (tensor<3x2xf64>, tensor<2xf64>, tensor<2xf64>) {
  %dx, %ds, %db = mpt.batch_norm_backward %dy, %x, %s, %m, %v {epsilon = 1.0e-3} : (tensor<3x2xf64>, tensor<3x2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<3x2xf64>, tensor<2xf64>, tensor<2xf64>)
  return %dx, %ds, %db : tensor<3x2xf64>, tensor<2xf64>, tensor<2xf64>
}
func.func @layer_norm_backward(%dy: tensor<2x3xf64>, %x: tensor<2x3xf64>, %s: tensor<3xf64>, %m: tensor<2xf64>, %i: tensor<2xf64>) -> (tensor<2x3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %dx, %ds, %db = mpt.layer_norm_backward %dy, %x, %s, %m, %i {axis = 1} : (tensor<2x3xf64>, tensor<2x3xf64>, tensor<3xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<2x3xf64>, tensor<3xf64>, tensor<3xf64>)
  return %dx, %ds, %db : tensor<2x3xf64>, tensor<3xf64>, tensor<3xf64>
}
func.func @rms_norm_backward(%dy: tensor<2x3xf64>, %x: tensor<2x3xf64>, %s: tensor<3xf64>, %i: tensor<2xf64>) -> (tensor<2x3xf64>, tensor<3xf64>) {
  %dx, %ds = mpt.rms_norm_backward %dy, %x, %s, %i {axis = 1} : (tensor<2x3xf64>, tensor<2x3xf64>, tensor<3xf64>, tensor<2xf64>) -> (tensor<2x3xf64>, tensor<3xf64>)
  return %dx, %ds : tensor<2x3xf64>, tensor<3xf64>
}
func.func @group_norm_backward(%dy: tensor<1x4x2xf64>, %x: tensor<1x4x2xf64>, %s: tensor<4xf64>, %m: tensor<1x2xf64>, %i: tensor<1x2xf64>) -> (tensor<1x4x2xf64>, tensor<4xf64>, tensor<4xf64>) {
  %dx, %ds, %db = mpt.group_norm_backward %dy, %x, %s, %m, %i {groups = 2} : (tensor<1x4x2xf64>, tensor<1x4x2xf64>, tensor<4xf64>, tensor<1x2xf64>, tensor<1x2xf64>) -> (tensor<1x4x2xf64>, tensor<4xf64>, tensor<4xf64>)
  return %dx, %ds, %db : tensor<1x4x2xf64>, tensor<4xf64>, tensor<4xf64>
}
func.func @softmax_backward(%dy: tensor<2x3xf64>, %y: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %dx = mpt.softmax_backward %dy, %y {axis = 1} : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
  return %dx : tensor<2x3xf64>
}
func.func @log_softmax_backward(%dy: tensor<2x3xf64>, %y: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %dx = mpt.log_softmax_backward %dy, %y {axis = 1} : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
  return %dx : tensor<2x3xf64>
}
