// RUN: mpt-run %s
// Blocks of 8-bit codes, with values that test/python/test_coded_slots.py works out from the published formulas.

func.func @signed_map() {
  %x = mpt.constant dense<[1.0, -0.5, 0.25, 0.0, 2.0, -2.0, 1.0e-6, 0.003]> : tensor<8xf32>
  %c, %s = mpt.encode_blocks %x : (tensor<8xf32>) -> (tensor<8xui8>, tensor<2xf32>)
  %codes = mpt.constant dense<[255, 35, 201, 127, 255, 0, 128, 143]> : tensor<8xui8>
  %scales = mpt.constant dense<[1.0, 2.0]> : tensor<2xf32>
  check.equal %c, %codes : tensor<8xui8>
  check.equal %s, %scales : tensor<2xf32>
  %y = mpt.decode_blocks %c, %s : (tensor<8xui8>, tensor<2xf32>) -> tensor<8xf32>
  %values = mpt.constant dense<[1.0, -0.500781238079071, 0.24765625596046448, 0.0, 2.0, -1.985937476158142, 1.0999999631167157e-06, 0.0025625000707805157]> : tensor<8xf32>
  check.equal %y, %values : tensor<8xf32>
  return
}

// Without negative values, twice as fine. The rows of a matrix need not be blocks.
func.func @unsigned_map() {
  %x = mpt.constant dense<[[1.0, 0.5], [0.25, 0.0], [2.0, 2.0], [1.0e-6, 0.003]]> : tensor<4x2xf32>
  %c, %s = mpt.encode_blocks %x {is_signed = false} : (tensor<4x2xf32>) -> (tensor<4x2xui8>, tensor<2xf32>)
  %codes = mpt.constant dense<[[255, 183], [148, 0], [255, 255], [1, 32]]> : tensor<4x2xui8>
  check.equal %c, %codes : tensor<4x2xui8>
  %y = mpt.decode_blocks %c, %s {is_signed = false} : (tensor<4x2xui8>, tensor<2xf32>) -> tensor<4x2xf32>
  %values = mpt.constant dense<[[1.0, 0.49726563692092896], [0.25117188692092896, 0.0], [2.0, 2.0], [6.500000040432496e-07, 0.0028437499422580004]]> : tensor<4x2xf32>
  check.equal %y, %values : tensor<4x2xf32>
  return
}

func.func @e4m3() {
  %x = mpt.constant dense<[1.0, -0.5, 0.25, 0.0, 2.0, -2.0, 1.0e-6, 0.003]> : tensor<8xf32>
  %c, %s = mpt.encode_blocks %x : (tensor<8xf32>) -> (tensor<8xf8E4M3FN>, tensor<2xf32>)
  %codes = mpt.constant dense<[448.0, -224.0, 112.0, 0.0, 448.0, -448.0, 0.0, 0.6875]> : tensor<8xf8E4M3FN>
  check.equal %c, %codes : tensor<8xf8E4M3FN>
  %y = mpt.decode_blocks %c, %s : (tensor<8xf8E4M3FN>, tensor<2xf32>) -> tensor<8xf32>
  %values = mpt.constant dense<[1.0, -0.5, 0.25, 0.0, 2.0, -2.0, 0.0, 0.003069196594879031]> : tensor<8xf32>
  check.equal %y, %values : tensor<8xf32>
  return
}

// Zeros have the scale 1e-12, and the code of 0.
func.func @zeros() {
  %x = mpt.constant dense<0.0> : tensor<4xf32>
  %c, %s = mpt.encode_blocks %x : (tensor<4xf32>) -> (tensor<4xui8>, tensor<1xf32>)
  %codes = mpt.constant dense<127> : tensor<4xui8>
  %scales = mpt.constant dense<1.0e-12> : tensor<1xf32>
  check.equal %c, %codes : tensor<4xui8>
  check.equal %s, %scales : tensor<1xf32>
  return
}
