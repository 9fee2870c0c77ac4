// RUN: mpt-run %s
// The generator's published vector for counter 0 and key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.

func.func @uniform() {
  %key = mpt.constant dense<0> : tensor<2xi64>
  %u = mpt.random_uniform %key {low = 0.0 : f64, high = 1.0 : f64, stream = 0 : i64} : (tensor<2xi64>) -> tensor<4xf32>
  %e = mpt.constant dense<[0x3ECC4FD0, 0x3F6169C5, 0x3F3C57AC, 0x3F1B00DB]> : tensor<4xf32>
  check.equal %u, %e : tensor<4xf32>
  return
}

// A ratio of one half keeps the elements whose word has its top bit.
func.func @dropout() {
  %key = mpt.constant dense<0> : tensor<2xi64>
  %x = mpt.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %y = mpt.dropout %x, %key {ratio = 0.5 : f64, stream = 0 : i64} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4xf32>
  %e = mpt.constant dense<[0.0, 4.0, 6.0, 8.0]> : tensor<4xf32>
  check.equal %y, %e : tensor<4xf32>
  return
}
