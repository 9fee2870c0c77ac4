// RUN: mpt-opt %s --library-form-attention | FileCheck %s --implicit-check-not=library.attention
// RUN: mpt-opt %s --library-form-attention --debug-only=library-form-attention 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// The gradient drops other elements.
// CHECK-LABEL: func.func @other_stream
// WHY: not an attention: expected the gradient of the probabilities from one GEMM, got it changed on the way
func.func @other_stream(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %d, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dd = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %d, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.dropout %dd, %key {ratio = 1.000000e-01 : f64, stream = 8 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// The gradient drops more.
// CHECK-LABEL: func.func @other_ratio
// WHY: not an attention: expected the gradient of the probabilities from one GEMM, got it changed on the way
func.func @other_ratio(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %d, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dd = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %d, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.dropout %dd, %key {ratio = 2.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// The gradient drops nothing.
// CHECK-LABEL: func.func @kept_gradient
// WHY: not an attention: expected the gradient to be dropped as the probabilities are, got another dropout
func.func @kept_gradient(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %d, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dd = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %d, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.cast %dd : tensor<2x2x8x8xbf16> to tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// The gradient is dropped twice.
// CHECK-LABEL: func.func @dropped_twice
// WHY: not an attention: expected the gradient to be dropped as the probabilities are, got another dropout
func.func @dropped_twice(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %d, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dd = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %d, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %de = mpt.dropout %dd, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %dp = mpt.dropout %de, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// The gradient of v is of the probabilities before dropout.
// CHECK-LABEL: func.func @before
// WHY: not an attention: expected GEMMs to read the probabilities behind dropout, got one that reads them before
func.func @before(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %d, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dd = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.dropout %dd, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// Two of them, one behind the other.
// CHECK-LABEL: func.func @again
// WHY: not an attention: expected one dropout of the probabilities, with a ratio above 0 and a key of 64 bits, got another one
func.func @again(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %e = mpt.dropout %d, %key {ratio = 1.000000e-01 : f64, stream = 8 : i64} : (tensor<2x2x8x8xbf16>, tensor<2xi64>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %e, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}
