// Elementwise ops of one operand.
func.func @abs(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.abs %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @neg(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.neg %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @sign(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.sign %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @floor(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.floor %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @ceil(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.ceil %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @round(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.round %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @relu(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.relu %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @exp(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.exp %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @sin(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.sin %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @cos(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.cos %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @tanh(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.tanh %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @sigmoid(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.sigmoid %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @erf(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.erf %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @softplus(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.softplus %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @log(%x: tensor<2x3xf64> {check.low = 0.5, check.high = 2.5}) -> tensor<2x3xf64> {
  %y = mpt.log %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @sqrt(%x: tensor<2x3xf64> {check.low = 0.5, check.high = 2.5}) -> tensor<2x3xf64> {
  %y = mpt.sqrt %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @rsqrt(%x: tensor<2x3xf64> {check.low = 0.5, check.high = 2.5}) -> tensor<2x3xf64> {
  %y = mpt.rsqrt %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @reciprocal(%x: tensor<2x3xf64> {check.low = 0.5, check.high = 2.5}) -> tensor<2x3xf64> {
  %y = mpt.reciprocal %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @gelu_erf(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.gelu %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @gelu_tanh(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.gelu %x {form = #mpt<gelu_form tanh>} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @swish(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.swish %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @swish_scaled(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.swish %x {alpha = 1.7} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @elu(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.elu %x {alpha = 0.7} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @leaky_relu(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.leaky_relu %x {alpha = 0.2} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @hard_sigmoid(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.hard_sigmoid %x {alpha = 0.4, beta = 0.45} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @clamp(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.clamp %x {low = -1.0, high = 0.9} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @cast(%x: tensor<2x3xf64>) -> tensor<2x3xf32> {
  %y = mpt.cast %x : tensor<2x3xf64> to tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}
func.func @dropout(%x: tensor<4x5xf64>) -> tensor<4x5xf64> {
  %key = mpt.constant dense<[3, 1]> : tensor<2xi64>
  %y = mpt.dropout %x, %key {ratio = 0.4, stream = 2} : (tensor<4x5xf64>, tensor<2xi64>) -> tensor<4x5xf64>
  return %y : tensor<4x5xf64>
}
