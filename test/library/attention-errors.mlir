// RUN: mpt-opt %s --split-input-file --verify-diagnostics

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x6x24xf16>) {
  // expected-error@+1 {{C1: expected q, k, v and o of rank 4 and element type 'f16', got 'tensor<2x6x24xf16>'}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>) {
  // expected-error@+1 {{C1: expected q, k, v and o of rank 4 and element type 'f16', got 'tensor<2x4x8x24xf32>'}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf32>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x8xf16>, %v: tensor<2x2x6x24xf16>) {
  // expected-error@+1 {{C2: expected one depth of q and k}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x8xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x5x24xf16>) {
  // expected-error@+1 {{C2: expected one batch and equal heads and keys of k and v}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x5x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x3x6x16xf16>, %v: tensor<2x3x6x24xf16>) {
  // expected-error@+1 {{C2: expected one batch, and heads of q divisible by those of k}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x3x6x16xf16>, tensor<2x3x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>) {
  // expected-error@+1 {{C3: expected o of shape}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>) {
  // expected-error@+1 {{C4: expected stats of type 'tensor<2x4x8xf32>', got 'tensor<2x4x8xf16>'}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf16>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>, %b: tensor<2x3x8x6xf32>) {
  // expected-error@+1 {{C5: expected a bias}}
  %o, %s = library.attention %q, %k, %v bias %b : tensor<2x3x8x6xf32> {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>, %b: tensor<1x1x1x1xf32>) {
  // expected-error@+1 {{C5: expected a bias}}
  %o, %s = library.attention %q, %k, %v bias %b : tensor<1x1x1x1xf32> {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @g(%q: tensor<2x4x8x16xf16>, %k: tensor<2x4x6x16xf16>, %v: tensor<2x4x6x24xf16>, %o: tensor<2x4x8x24xf16>, %s: tensor<2x4x8xf32>, %d: tensor<2x4x8x24xf16>) {
  // expected-error@+1 {{C6: expected a gradient of type 'tensor<2x4x6x16xf16>', got 'tensor<2x4x6x16xf32>'}}
  %r:3 = library.attention_gradient %q, %k, %v of %o, %s from %d {scale = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x6x16xf16>, tensor<2x4x6x24xf16> of tensor<2x4x8x24xf16>, tensor<2x4x8xf32> from tensor<2x4x8x24xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x6x16xf32>, tensor<2x4x6x24xf16>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>) {
  // expected-error@+1 {{C7: expected a key for ratio 2.500000e-01, got none}}
  %o, %s = library.attention %q, %k, %v {scale = 1.0 : f64, ratio = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>, %key: tensor<3xi64>) {
  // expected-error@+1 {{C7: expected a key of two 64-bit elements, got 'tensor<3xi64>'}}
  %o, %s = library.attention %q, %k, %v dropout %key : tensor<3xi64> {scale = 1.0 : f64, ratio = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}

// -----

func.func @a(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x6x16xf16>, %v: tensor<2x2x6x24xf16>, %key: tensor<2xi64>) {
  // expected-error@+1 {{C7: expected a ratio between 0 and 1 beside a key, got 1.000000e+00}}
  %o, %s = library.attention %q, %k, %v dropout %key : tensor<2xi64> {scale = 1.0 : f64, ratio = 1.0 : f64} : tensor<2x4x8x16xf16>, tensor<2x2x6x16xf16>, tensor<2x2x6x24xf16> -> tensor<2x4x8x24xf16>, tensor<2x4x8xf32>
  return
}
