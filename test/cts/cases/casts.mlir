// Conversions between storage types: roundings, overflow, and the 8-bit formats.
func.func @narrow(%a: tensor<67xf64>) -> (tensor<67xf16>, tensor<67xbf16>, tensor<67xf32>) {
  %0 = mpt.cast %a : tensor<67xf64> to tensor<67xf16>
  %1 = mpt.cast %a : tensor<67xf64> to tensor<67xbf16>
  %2 = mpt.cast %1 : tensor<67xbf16> to tensor<67xf32>
  return %0, %1, %2 : tensor<67xf16>, tensor<67xbf16>, tensor<67xf32>
}
func.func @subnormal(%a: tensor<67xf32> {check.low = -1.0e-5, check.high = 1.0e-5}) -> (tensor<67xf16>, tensor<67xf32>) {
  %0 = mpt.cast %a : tensor<67xf32> to tensor<67xf16>
  %1 = mpt.cast %0 : tensor<67xf16> to tensor<67xf32>
  return %0, %1 : tensor<67xf16>, tensor<67xf32>
}
func.func @subnormal_bf16(%a: tensor<67xf32> {check.low = -2.0e-38, check.high = 2.0e-38}) -> (tensor<67xbf16>, tensor<67xf32>) {
  %0 = mpt.cast %a : tensor<67xf32> to tensor<67xbf16>
  %1 = mpt.cast %0 : tensor<67xbf16> to tensor<67xf32>
  return %0, %1 : tensor<67xbf16>, tensor<67xf32>
}
func.func @overflow(%a: tensor<67xf32> {check.low = -2.0e5, check.high = 2.0e5}) -> (tensor<67xf16>, tensor<67xf16>) {
  %0 = mpt.cast %a : tensor<67xf32> to tensor<67xf16>
  %1 = mpt.cast %a {overflow = #mpt<overflow saturate>} : tensor<67xf32> to tensor<67xf16>
  return %0, %1 : tensor<67xf16>, tensor<67xf16>
}
func.func @toward_zero(%a: tensor<67xf32>) -> (tensor<67xf16>, tensor<67xbf16>) {
  %0 = mpt.cast %a {rounding = #mpt<rounding toward_zero>} : tensor<67xf32> to tensor<67xf16>
  %1 = mpt.cast %a {rounding = #mpt<rounding toward_zero>} : tensor<67xf32> to tensor<67xbf16>
  return %0, %1 : tensor<67xf16>, tensor<67xbf16>
}
func.func @stochastic(%a: tensor<67xf32>) -> (tensor<67xf16>, tensor<67xbf16>) {
  %k = mpt.constant dense<[7, 3]> : tensor<2xi64>
  %0 = mpt.cast %a key %k : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 1 : i64} : tensor<67xf32> to tensor<67xf16>
  %1 = mpt.cast %a key %k : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 2 : i64} : tensor<67xf32> to tensor<67xbf16>
  return %0, %1 : tensor<67xf16>, tensor<67xbf16>
}
func.func @e4m3(%a: tensor<67xf32> {check.low = -500.0, check.high = 500.0}) -> (tensor<67xf32>, tensor<67xf32>) {
  %0 = mpt.cast %a : tensor<67xf32> to tensor<67xf8E4M3FN>
  %1 = mpt.cast %0 : tensor<67xf8E4M3FN> to tensor<67xf32>
  %2 = mpt.cast %a {overflow = #mpt<overflow saturate>} : tensor<67xf32> to tensor<67xf8E4M3FN>
  %3 = mpt.cast %2 : tensor<67xf8E4M3FN> to tensor<67xf32>
  return %1, %3 : tensor<67xf32>, tensor<67xf32>
}
func.func @e5m2(%a: tensor<67xf64>) -> tensor<67xf64> {
  %0 = mpt.cast %a : tensor<67xf64> to tensor<67xf8E5M2>
  %1 = mpt.cast %0 : tensor<67xf8E5M2> to tensor<67xf64>
  return %1 : tensor<67xf64>
}
func.func @e5m2_small(%a: tensor<67xf32> {check.low = -1.0e-4, check.high = 1.0e-4}) -> tensor<67xf32> {
  %0 = mpt.cast %a : tensor<67xf32> to tensor<67xf8E5M2>
  %1 = mpt.cast %0 : tensor<67xf8E5M2> to tensor<67xf32>
  return %1 : tensor<67xf32>
}
func.func @integers(%a: tensor<67xf64> {check.low = -99.0, check.high = 99.0}, %i: tensor<67xi64> {check.low = -99.0, check.high = 99.0}) -> (tensor<67xi64>, tensor<67xi32>, tensor<67xf64>, tensor<67xi1>) {
  %0 = mpt.cast %a : tensor<67xf64> to tensor<67xi64>
  %1 = mpt.cast %a : tensor<67xf64> to tensor<67xi32>
  %2 = mpt.cast %i : tensor<67xi64> to tensor<67xf64>
  %3 = mpt.cast %i : tensor<67xi64> to tensor<67xi1>
  return %0, %1, %2, %3 : tensor<67xi64>, tensor<67xi32>, tensor<67xf64>, tensor<67xi1>
}
// Arithmetic of unsigned numbers wraps, and floats beyond their range become its ends.
func.func @unsigned(%a: tensor<67xf64> {check.low = -99.0, check.high = 399.0}, %i: tensor<67xi64> {check.low = -300.0, check.high = 300.0}) -> (tensor<67xf64>, tensor<67xi64>, tensor<67xi64>, tensor<67xi1>) {
  %0 = mpt.cast %i : tensor<67xi64> to tensor<67xui8>
  %1 = mpt.cast %0 : tensor<67xui8> to tensor<67xf64>
  %2 = mpt.mul %0, %0 : tensor<67xui8>
  %3 = mpt.cast %2 : tensor<67xui8> to tensor<67xi64>
  %4 = mpt.cast %a : tensor<67xf64> to tensor<67xui8>
  %5 = mpt.max %4, %0 : tensor<67xui8>
  %6 = mpt.cast %5 : tensor<67xui8> to tensor<67xi64>
  %7 = mpt.compare lt %0, %4 : tensor<67xui8>
  return %1, %3, %6, %7 : tensor<67xf64>, tensor<67xi64>, tensor<67xi64>, tensor<67xi1>
}
func.func @bucketize(%a: tensor<5x7xf64>) -> (tensor<5x7xi32>, tensor<5x7xi64>) {
  %b = mpt.constant dense<[-1.0, -0.75, -0.5, 0.0, 0.25, 0.5, 1.0]> : tensor<7xf32>
  %0 = mpt.bucketize %a, %b : (tensor<5x7xf64>, tensor<7xf32>) -> tensor<5x7xui8>
  %1 = mpt.cast %0 : tensor<5x7xui8> to tensor<5x7xi32>
  %2 = mpt.bucketize %a, %b : (tensor<5x7xf64>, tensor<7xf32>) -> tensor<5x7xi64>
  return %1, %2 : tensor<5x7xi32>, tensor<5x7xi64>
}
func.func @encode_blocks(%a: tensor<8x96xf32>) -> (tensor<8x96xi32>, tensor<8x96xi32>, tensor<3xf32>, tensor<3xf32>) {
  %0, %s = mpt.encode_blocks %a : (tensor<8x96xf32>) -> (tensor<8x96xui8>, tensor<3xf32>)
  %1 = mpt.cast %0 : tensor<8x96xui8> to tensor<8x96xi32>
  %2, %t = mpt.encode_blocks %a {is_signed = false} : (tensor<8x96xf32>) -> (tensor<8x96xui8>, tensor<3xf32>)
  %3 = mpt.cast %2 : tensor<8x96xui8> to tensor<8x96xi32>
  %4, %u = mpt.encode_blocks %a : (tensor<8x96xf32>) -> (tensor<8x96xf8E4M3FN>, tensor<3xf32>)
  return %1, %3, %s, %u : tensor<8x96xi32>, tensor<8x96xi32>, tensor<3xf32>, tensor<3xf32>
}
func.func @decode_blocks(%a: tensor<8x96xi32> {check.low = 0.0, check.high = 256.0}, %s: tensor<3xf32>) -> (tensor<8x96xf32>, tensor<8x96xf32>) {
  %0 = mpt.cast %a : tensor<8x96xi32> to tensor<8x96xui8>
  %1 = mpt.decode_blocks %0, %s : (tensor<8x96xui8>, tensor<3xf32>) -> tensor<8x96xf32>
  %2 = mpt.decode_blocks %0, %s {is_signed = false} : (tensor<8x96xui8>, tensor<3xf32>) -> tensor<8x96xf32>
  return %1, %2 : tensor<8x96xf32>, tensor<8x96xf32>
}
