// Elementwise ops of two operands, and selection.
func.func @add(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.add %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @sub(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.sub %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @mul(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.mul %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @max(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.max %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @min(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.min %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @div(%a: tensor<2x3xf64>, %b: tensor<2x3xf64> {check.low = 0.5, check.high = 2.0}) -> tensor<2x3xf64> {
  %y = mpt.div %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @mod(%a: tensor<2x3xf64> {check.low = 2.0, check.high = 3.0}, %b: tensor<2x3xf64> {check.low = 1.1, check.high = 1.4}) -> tensor<2x3xf64> {
  %y = mpt.mod %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @pow(%a: tensor<2x3xf64> {check.low = 0.5, check.high = 2.0}, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.pow %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @square(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %two = mpt.constant dense<2.0> : tensor<2x3xf64>
  %y = mpt.pow %x, %two : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @cube(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %three = mpt.constant dense<3.0> : tensor<2x3xf64>
  %y = mpt.pow %x, %three : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @same_operand(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.mul %x, %x : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @select(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %c = mpt.constant dense<[[true, false, true], [false, false, true]]> : tensor<2x3xi1>
  %y = mpt.select %c, %a, %b : tensor<2x3xi1>, tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @gelu_backward_erf(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.gelu_backward %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @gelu_backward_tanh(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.gelu_backward %a, %b {form = #mpt<gelu_form tanh>} : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @relu_backward(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.relu_backward %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @tanh_backward(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.tanh_backward %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @sigmoid_backward(%a: tensor<2x3xf64>, %b: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %y = mpt.sigmoid_backward %a, %b : tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
