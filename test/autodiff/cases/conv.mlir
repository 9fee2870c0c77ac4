// Convolution, and its gradients as forward ops.
func.func @plain(%x: tensor<2x2x4x4xf64>, %w: tensor<3x2x3x3xf64>) -> tensor<2x3x4x4xf64> {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 1>,
    pads_high = array<i64: 1, 1>, groups = 1} : (tensor<2x2x4x4xf64>, tensor<3x2x3x3xf64>) -> tensor<2x3x4x4xf64>
  return %y : tensor<2x3x4x4xf64>
}
// Stride 2 leaves a row of x that no window reads.
func.func @strided_grouped(%x: tensor<1x4x6x5xf64>, %w: tensor<4x2x3x2xf64>) -> tensor<1x4x2x3xf64> {
  %y = mpt.conv %x, %w {strides = array<i64: 2, 2>, dilations = array<i64: 1, 2>, pads_low = array<i64: 0, 1>,
    pads_high = array<i64: 0, 1>, groups = 2} : (tensor<1x4x6x5xf64>, tensor<4x2x3x2xf64>) -> tensor<1x4x2x3xf64>
  return %y : tensor<1x4x2x3xf64>
}
func.func @one_dimension(%x: tensor<2x2x5xf64>, %w: tensor<2x2x2xf64>) -> tensor<2x2x4xf64> {
  %y = mpt.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads_low = array<i64: 0>,
    pads_high = array<i64: 0>, groups = 1} : (tensor<2x2x5xf64>, tensor<2x2x2xf64>) -> tensor<2x2x4xf64>
  return %y : tensor<2x2x4xf64>
}
func.func @transposed(%dy: tensor<1x3x2x2xf64>, %w: tensor<3x2x3x3xf64>) -> tensor<1x2x4x4xf64> {
  %y = mpt.conv_backward_data %dy, %w {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 1>,
    pads_high = array<i64: 0, 0>, groups = 1} : (tensor<1x3x2x2xf64>, tensor<3x2x3x3xf64>) -> tensor<1x2x4x4xf64>
  return %y : tensor<1x2x4x4xf64>
}
func.func @weights(%x: tensor<1x2x4x4xf64>, %dy: tensor<1x3x2x2xf64>) -> tensor<3x2x3x3xf64> {
  %y = mpt.conv_backward_weights %x, %dy {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 1>,
    pads_high = array<i64: 0, 0>, groups = 1} : (tensor<1x2x4x4xf64>, tensor<1x3x2x2xf64>) -> tensor<3x2x3x3xf64>
  return %y : tensor<3x2x3x3xf64>
}
