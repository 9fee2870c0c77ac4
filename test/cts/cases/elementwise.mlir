// Ops without a gradient, and sizes around vector widths.
func.func @compare(%a: tensor<17xf64>, %b: tensor<17xf64>) -> tensor<17xi1> {
  %y = mpt.compare lt %a, %b : tensor<17xf64>
  return %y : tensor<17xi1>
}
func.func @tests(%x: tensor<5x3xf64>) -> (tensor<5x3xi1>, tensor<5x3xi1>, tensor<5x3xi1>) {
  %a = mpt.is_nan %x : tensor<5x3xf64>
  %b = mpt.is_inf %x : tensor<5x3xf64>
  %c = mpt.is_finite %x : tensor<5x3xf64>
  return %a, %b, %c : tensor<5x3xi1>, tensor<5x3xi1>, tensor<5x3xi1>
}
func.func @logic(%a: tensor<3x3xi1>, %b: tensor<3x3xi1>) -> (tensor<3x3xi1>, tensor<3x3xi1>, tensor<3x3xi1>, tensor<3x3xi1>) {
  %0 = mpt.and %a, %b : tensor<3x3xi1>
  %1 = mpt.or %a, %b : tensor<3x3xi1>
  %2 = mpt.xor %a, %b : tensor<3x3xi1>
  %3 = mpt.not %a : tensor<3x3xi1>
  return %0, %1, %2, %3 : tensor<3x3xi1>, tensor<3x3xi1>, tensor<3x3xi1>, tensor<3x3xi1>
}
func.func @integers(%a: tensor<9xi64> {check.low = -9.0, check.high = 9.0}, %b: tensor<9xi64> {check.low = 1.0, check.high = 5.0}) -> (tensor<9xi64>, tensor<9xi64>, tensor<9xi64>) {
  %0 = mpt.mul %a, %b : tensor<9xi64>
  %1 = mpt.div %a, %b : tensor<9xi64>
  %2 = mpt.mod %a, %b : tensor<9xi64>
  return %0, %1, %2 : tensor<9xi64>, tensor<9xi64>, tensor<9xi64>
}
func.func @long(%a: tensor<1031xf64>, %b: tensor<1031xf64>) -> tensor<1031xf64> {
  %0 = mpt.mul %a, %b : tensor<1031xf64>
  %1 = mpt.tanh %0 : tensor<1031xf64>
  %2 = mpt.add %1, %a : tensor<1031xf64>
  return %2 : tensor<1031xf64>
}
func.func @scalar(%a: tensor<f64>) -> tensor<f64> {
  %0 = mpt.exp %a : tensor<f64>
  return %0 : tensor<f64>
}
func.func @dropout(%a: tensor<37xf64>) -> tensor<37xf64> {
  %k = mpt.constant dense<[7, 3]> : tensor<2xi64>
  %y = mpt.dropout %a, %k {ratio = 0.25 : f64, stream = 2 : i64} : (tensor<37xf64>, tensor<2xi64>) -> tensor<37xf64>
  return %y : tensor<37xf64>
}
// Truth values are read and written in vectors.
func.func @masked(%x: tensor<6x37xf64>, %m: tensor<37xi1>, %n: tensor<6x37xi1>) -> (tensor<6x37xf64>, tensor<6x37xi1>) {
  %all = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<37xi1>) -> tensor<6x37xi1>
  %both = mpt.and %all, %n : tensor<6x37xi1>
  %e = mpt.exp %x : tensor<6x37xf64>
  %y = mpt.select %both, %e, %x : tensor<6x37xi1>, tensor<6x37xf64>
  return %y, %both : tensor<6x37xf64>, tensor<6x37xi1>
}
