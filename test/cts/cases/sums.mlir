// Thousands of terms that meet in one element: sums in a narrow type stop growing at 2^8 (bf16) or 2^11 (f16) of them.
func.func @scatter_add_many(%u: tensor<4096x3xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<2x3xf64> {
  %i = mpt.constant dense<1> : tensor<4096xi64>
  %y = mpt.scatter_add %i, %u {axis = 0} : (tensor<4096xi64>, tensor<4096x3xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @scatter_elements_many(%x: tensor<2x3xf64>, %u: tensor<4096x3xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<2x3xf64> {
  %i = mpt.constant dense<1> : tensor<4096x3xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 0, kind = #mpt<scatter_kind add>} : (tensor<2x3xf64>, tensor<4096x3xi64>, tensor<4096x3xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @scatter_elements_from_zero(%u: tensor<3x4096xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<3x2xf64> {
  %x = mpt.constant dense<0.0> : tensor<3x2xf64>
  %i = mpt.constant dense<-1> : tensor<3x4096xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 1, kind = #mpt<scatter_kind add>} : (tensor<3x2xf64>, tensor<3x4096xi64>, tensor<3x4096xf64>) -> tensor<3x2xf64>
  return %y : tensor<3x2xf64>
}
func.func @scatter_elements_product(%x: tensor<2x3xf64> {check.low = 0.5, check.high = 1.0}, %u: tensor<512x3xf64> {check.low = 0.99, check.high = 1.02}) -> tensor<2x3xf64> {
  %i = mpt.constant dense<0> : tensor<512x3xi64>
  %y = mpt.scatter_elements %x, %i, %u {axis = 0, kind = #mpt<scatter_kind mul>} : (tensor<2x3xf64>, tensor<512x3xi64>, tensor<512x3xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @scatter_nd_many(%x: tensor<2x3xf64>, %u: tensor<4096x3xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<2x3xf64> {
  %i = mpt.constant dense<1> : tensor<4096x1xi64>
  %y = mpt.scatter_nd %x, %i, %u {kind = #mpt<scatter_kind add>} : (tensor<2x3xf64>, tensor<4096x1xi64>, tensor<4096x3xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @scatter_nd_product(%x: tensor<2xf64> {check.low = 0.5, check.high = 1.0}, %u: tensor<512xf64> {check.low = 0.99, check.high = 1.02}) -> tensor<2xf64> {
  %i = mpt.constant dense<0> : tensor<512x1xi64>
  %y = mpt.scatter_nd %x, %i, %u {kind = #mpt<scatter_kind mul>} : (tensor<2xf64>, tensor<512x1xi64>, tensor<512xf64>) -> tensor<2xf64>
  return %y : tensor<2xf64>
}
func.func @cum_sum_long(%x: tensor<4096x2xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<4096x2xf64> {
  %y = mpt.cum_sum %x {axis = 0} : (tensor<4096x2xf64>) -> tensor<4096x2xf64>
  return %y : tensor<4096x2xf64>
}
func.func @reduce_long(%x: tensor<4096x3xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<3xf64> {
  %y = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<4096x3xf64>) -> tensor<3xf64>
  return %y : tensor<3xf64>
}
func.func @max_pool_backward_many(%x: tensor<1x2x64x64xf64>, %dy: tensor<1x2x17x17xf64> {check.low = 0.5, check.high = 0.5}) -> tensor<1x2x64x64xf64> {
  %y, %i = mpt.max_pool %x {kernel = array<i64: 48, 48>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x64x64xf64>) -> (tensor<1x2x17x17xf64>, tensor<1x2x17x17xi32>)
  %dx = mpt.max_pool_backward %dy, %i {kernel = array<i64: 48, 48>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x17x17xf64>, tensor<1x2x17x17xi32>) -> tensor<1x2x64x64xf64>
  return %dx : tensor<1x2x64x64xf64>
}
func.func @avg_pool_many(%x: tensor<1x2x64x64xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<1x2x1x1xf64> {
  %y = mpt.avg_pool %x {kernel = array<i64: 64, 64>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x64x64xf64>) -> tensor<1x2x1x1xf64>
  return %y : tensor<1x2x1x1xf64>
}
func.func @avg_pool_backward_many(%dy: tensor<1x2x17x17xf64> {check.low = 0.25, check.high = 1.0}) -> tensor<1x2x64x64xf64> {
  %dx = mpt.avg_pool_backward %dy {kernel = array<i64: 48, 48>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>} : (tensor<1x2x17x17xf64>) -> tensor<1x2x64x64xf64>
  return %dx : tensor<1x2x64x64xf64>
}
func.func @cum_sum_lines(%x: tensor<3x40x70xf64>) -> tensor<3x40x70xf64> {
  %y = mpt.cum_sum %x {axis = 1, exclusive = true, reverse = true} : (tensor<3x40x70xf64>) -> tensor<3x40x70xf64>
  return %y : tensor<3x40x70xf64>
}
func.func @cum_sum_last(%x: tensor<5x33xf64> {check.low = -0.4, check.high = 0.4}) -> tensor<5x33xf64> {
  %z = mpt.mul %x, %x : tensor<5x33xf64>
  %y = mpt.cum_sum %z {axis = 1, reverse = true} : (tensor<5x33xf64>) -> tensor<5x33xf64>
  %w = mpt.exp %y : tensor<5x33xf64>
  return %w : tensor<5x33xf64>
}
