// Pooling and resampling, and their gradients as forward ops.
func.func @max_pool(%x: tensor<1x2x4x5xf64>) -> tensor<1x2x3x3xf64> {
  %y, %at = mpt.max_pool %x {kernel = array<i64: 2, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>,
    pads_low = array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : (tensor<1x2x4x5xf64>) -> (tensor<1x2x3x3xf64>, tensor<1x2x3x3xi32>)
  return %y : tensor<1x2x3x3xf64>
}
func.func @max_pool_backward(%dy: tensor<1x2x2x2xf64>) -> tensor<1x2x4x4xf64> {
  %at = mpt.constant dense<[[[[0, 6], [9, 6]], [[5, 2], [8, 15]]]]> : tensor<1x2x2x2xi32>
  %y = mpt.max_pool_backward %dy, %at {kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>,
    pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x2x2xf64>, tensor<1x2x2x2xi32>) -> tensor<1x2x4x4xf64>
  return %y : tensor<1x2x4x4xf64>
}
func.func @avg_pool(%x: tensor<1x2x4x5xf64>) -> tensor<1x2x3x3xf64> {
  %y = mpt.avg_pool %x {kernel = array<i64: 2, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>,
    pads_low = array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : (tensor<1x2x4x5xf64>) -> tensor<1x2x3x3xf64>
  return %y : tensor<1x2x3x3xf64>
}
func.func @avg_pool_padding_counts(%x: tensor<1x2x4xf64>) -> tensor<1x2x3xf64> {
  %y = mpt.avg_pool %x {kernel = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_low = array<i64: 1>,
    pads_high = array<i64: 1>, count_include_pad = true} : (tensor<1x2x4xf64>) -> tensor<1x2x3xf64>
  return %y : tensor<1x2x3xf64>
}
func.func @avg_pool_backward(%dy: tensor<1x2x3x3xf64>) -> tensor<1x2x4x5xf64> {
  %y = mpt.avg_pool_backward %dy {kernel = array<i64: 2, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>,
    pads_low = array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : (tensor<1x2x3x3xf64>) -> tensor<1x2x4x5xf64>
  return %y : tensor<1x2x4x5xf64>
}
func.func @resize(%x: tensor<1x2x2x3xf64>) -> tensor<1x2x3x2xf64> {
  %y = mpt.resize %x {axes = array<i64: 2, 3>, taps = array<i64: 2, 1>,
    positions = [array<i64: 0, 1, 0, 1, 1, 1>, array<i64: 0, 2>],
    weights = [array<f64: 0.75, 0.25, 0.5, 0.5, 0.25, 0.75>, array<f64: 1.0, 1.0>]} : (tensor<1x2x2x3xf64>) -> tensor<1x2x3x2xf64>
  return %y : tensor<1x2x3x2xf64>
}
func.func @resize_backward(%dy: tensor<1x2x3xf64>) -> tensor<1x2x2xf64> {
  %y = mpt.resize_backward %dy {axes = array<i64: 2>, taps = array<i64: 2>, positions = [array<i64: 0, 1, 0, 1, 1, 1>],
    weights = [array<f64: 0.75, 0.25, 0.5, 0.5, 0.25, 0.75>]} : (tensor<1x2x3xf64>) -> tensor<1x2x2xf64>
  return %y : tensor<1x2x2xf64>
}
