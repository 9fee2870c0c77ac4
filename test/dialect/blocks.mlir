// RUN: mpt-opt %s --split-input-file --verify-diagnostics
// Types that codes, their scales and boundaries have to have.

func.func @shape(%x: tensor<8xf32>) {
  // expected-error @below {{C1: expected codes of the shape of 'tensor<8xf32>', got 'tensor<4x2xui8>'}}
  %c, %s = mpt.encode_blocks %x : (tensor<8xf32>) -> (tensor<4x2xui8>, tensor<2xf32>)
  return
}

// -----

func.func @scales(%c: tensor<8xui8>, %s: tensor<3xf32>) {
  // expected-error @below {{C2: expected a vector of scales whose extent divides 8 elements, got 'tensor<3xf32>'}}
  %x = mpt.decode_blocks %c, %s : (tensor<8xui8>, tensor<3xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @code(%x: tensor<8xf32>) {
  // expected-error @below {{C3: expected codes of ui8 or f8E4M3FN, got 'f8E5M2'}}
  %c, %s = mpt.encode_blocks %x : (tensor<8xf32>) -> (tensor<8xf8E5M2>, tensor<2xf32>)
  return
}

// -----

func.func @boundaries(%x: tensor<8xf32>, %b: tensor<4xf32>) {
  // expected-error @below {{C2: expected a vector of 1, 3, 7, 15 or so on boundaries, got 'tensor<4xf32>'}}
  %y = mpt.bucketize %x, %b : (tensor<8xf32>, tensor<4xf32>) -> tensor<8xui8>
  return
}
