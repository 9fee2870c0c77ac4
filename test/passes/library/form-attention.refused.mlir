// RUN: mpt-opt %s --library-form-attention | FileCheck %s --implicit-check-not=library.attention
// RUN: mpt-opt %s --library-form-attention --debug-only=library-form-attention 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// Softmax over queries.
// CHECK-LABEL: func.func @axis
// WHY: not an attention: expected scores of rank 3 or 4 and a softmax over the last dimension, got others
func.func @axis(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 2 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}

// Rows with NaN become 1.
// CHECK-LABEL: func.func @guard
// WHY: not an attention: expected a select behind softmax to put 0 for NaN or for rows without keys, got another one
func.func @guard(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %n = mpt.is_nan %p : tensor<2x2x8x8xbf16>
  %one = mpt.constant dense<1.0> : tensor<2x2x8x8xbf16>
  %g = mpt.select %n, %one, %p : tensor<2x2x8x8xi1>, tensor<2x2x8x8xbf16>
  %o = mpt.matmul %g, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}

// Somebody else asks where probabilities are NaN.
// CHECK-LABEL: func.func @nan
// WHY: not an attention: expected selects alone to read where probabilities are NaN, got another reader
func.func @nan(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x8xi1>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %n = mpt.is_nan %p : tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %n : tensor<2x2x8x16xbf16>, tensor<2x2x8x8xi1>
}

// Two GEMMs with the probabilities.
// CHECK-LABEL: func.func @twice
// WHY: not an attention: expected one GEMM with the probabilities each way, got more or fewer
func.func @twice(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %u = mpt.matmul %p, %q : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %u : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// The probabilities on the right.
// CHECK-LABEL: func.func @second
// WHY: not an attention: expected the probabilities to be the first operand of a GEMM, got them elsewhere
func.func @second(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> tensor<2x2x16x8xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %v, %p {transpose_a = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x16x8xbf16>
  return %o : tensor<2x2x16x8xbf16>
}

// Scores multiplied in FP32.
// CHECK-LABEL: func.func @type
// WHY: not an attention: expected GEMMs that multiply in their operands' type and accumulate in FP32, got other types
func.func @type(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {numerics = #mpt.numerics<in = f32, acc = f32, out = bf16>, transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}

// A select that excludes no key.
// CHECK-LABEL: func.func @mask
// WHY: not an attention: expected additions and selects that mask keys, got others
func.func @mask(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %m: tensor<2x2x8x8xi1>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %low = mpt.constant dense<-1.0> : tensor<2x2x8x8xbf16>
  %x = mpt.select %m, %s, %low : tensor<2x2x8x8xi1>, tensor<2x2x8x8xbf16>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}

// The gradient of the probabilities is negated.
// CHECK-LABEL: func.func @changed
// WHY: not an attention: expected the gradient of the probabilities from one GEMM, got it changed on the way
func.func @changed(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dn = mpt.neg %dp : tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dn, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dv, %dq, %dk : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// dv of another gradient than the output's.
// CHECK-LABEL: func.func @other_output
// WHY: not an attention: expected the GEMMs of the output's gradient, got others
func.func @other_output(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %h: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dv = mpt.matmul %p, %h {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dv, %dq, %dk : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// dq of other keys than the scores'.
// CHECK-LABEL: func.func @other_query
// WHY: not an attention: expected the GEMMs of q's and k's gradients, got another one
func.func @other_query(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dv, %dq, %dk : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// The gradient of the scores is negated.
// CHECK-LABEL: func.func @negated
// WHY: not an attention: expected scales and masks between the gradient of the scores and its GEMMs, got another op
func.func @negated(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %d0 = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %ds = mpt.neg %d0 : tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dv, %dq, %dk : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}
