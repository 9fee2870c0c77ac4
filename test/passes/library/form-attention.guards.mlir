// RUN: mpt-opt %s --library-form-attention | FileCheck %s
// RUN: mpt-opt %s --library-form-attention --debug-only=library-form-attention 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// Rows without keys as torch.export writes them: not any score is other than -infinity. Their gradient is of the probabilities with these rows zero.
// CHECK-LABEL: func.func @not_any
// CHECK-NOT: mpt.softmax
// CHECK: library.attention %arg0, %arg1, %arg2 bias
// CHECK: library.attention_gradient
func.func @not_any(%q: tensor<2x2x8x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x16xf16>, %mask: tensor<2x1x1x8xf16>, %g: tensor<2x2x8x16xf16>) -> (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) {
  %inf = mpt.constant dense<0xFC00> : tensor<2x2x8x8xf16>
  %zero = mpt.constant dense<0.0> : tensor<2x2x8x8xf16>
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x8xf16>
  %m = mpt.broadcast %mask {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x1x1x8xf16>) -> tensor<2x2x8x8xf16>
  %x = mpt.add %s, %m : tensor<2x2x8x8xf16>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xf16>) -> tensor<2x2x8x8xf16>
  %eq = mpt.compare eq %x, %inf : tensor<2x2x8x8xf16>
  %ne = mpt.not %eq : tensor<2x2x8x8xi1>
  %i = mpt.cast %ne : tensor<2x2x8x8xi1> to tensor<2x2x8x8xi64>
  %any = mpt.reduce max %i {axes = array<i64: 3>} : (tensor<2x2x8x8xi64>) -> tensor<2x2x8xi64>
  %rows = mpt.reshape %any : (tensor<2x2x8xi64>) -> tensor<2x2x8x1xi64>
  %some = mpt.cast %rows : tensor<2x2x8x1xi64> to tensor<2x2x8x1xi1>
  %none = mpt.not %some : tensor<2x2x8x1xi1>
  %all = mpt.broadcast %none {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x8x1xi1>) -> tensor<2x2x8x8xi1>
  %y = mpt.select %all, %zero, %p : tensor<2x2x8x8xi1>, tensor<2x2x8x8xf16>
  %o = mpt.matmul %y, %v : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x8xf16>
  %dv = mpt.matmul %y, %g {transpose_a = true} : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  %ds = mpt.softmax_backward %dp, %y {axis = 3 : i64} : (tensor<2x2x8x8xf16>, tensor<2x2x8x8xf16>) -> tensor<2x2x8x8xf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>
}

// The other way round: all of a row's are not -infinity, negated, keeps the probabilities.
// CHECK-LABEL: func.func @all
// CHECK: library.attention %arg0
func.func @all(%q: tensor<2x2x8x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16> {
  %inf = mpt.constant dense<0xFC00> : tensor<2x2x8x8xf16>
  %zero = mpt.constant dense<0.0> : tensor<2x2x8x8xf16>
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x8xf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xf16>) -> tensor<2x2x8x8xf16>
  %eq = mpt.compare eq %s, %inf : tensor<2x2x8x8xf16>
  %i = mpt.cast %eq : tensor<2x2x8x8xi1> to tensor<2x2x8x8xi32>
  %every = mpt.reduce min %i {axes = array<i64: 3>} : (tensor<2x2x8x8xi32>) -> tensor<2x2x8xi32>
  %empty = mpt.cast %every : tensor<2x2x8xi32> to tensor<2x2x8xi1>
  %some = mpt.not %empty : tensor<2x2x8xi1>
  %rows = mpt.reshape %some : (tensor<2x2x8xi1>) -> tensor<2x2x8x1xi1>
  %keep = mpt.broadcast %rows {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x8x1xi1>) -> tensor<2x2x8x8xi1>
  %y = mpt.select %keep, %p, %zero : tensor<2x2x8x8xi1>, tensor<2x2x8x8xf16>
  %o = mpt.matmul %y, %v : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  return %o : tensor<2x2x8x16xf16>
}

// Rows with any key excluded are another matter.
// CHECK-LABEL: func.func @some_excluded
// CHECK-NOT: library.attention
// WHY: not an attention: expected a select behind softmax to put 0 for NaN or for rows without keys, got another one
func.func @some_excluded(%q: tensor<2x2x8x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16> {
  %inf = mpt.constant dense<0xFC00> : tensor<2x2x8x8xf16>
  %zero = mpt.constant dense<0.0> : tensor<2x2x8x8xf16>
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x8xf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xf16>) -> tensor<2x2x8x8xf16>
  %eq = mpt.compare eq %s, %inf : tensor<2x2x8x8xf16>
  %i = mpt.cast %eq : tensor<2x2x8x8xi1> to tensor<2x2x8x8xi32>
  %any = mpt.reduce max %i {axes = array<i64: 3>} : (tensor<2x2x8x8xi32>) -> tensor<2x2x8xi32>
  %cut = mpt.cast %any : tensor<2x2x8xi32> to tensor<2x2x8xi1>
  %rows = mpt.reshape %cut : (tensor<2x2x8xi1>) -> tensor<2x2x8x1xi1>
  %drop = mpt.broadcast %rows {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x8x1xi1>) -> tensor<2x2x8x8xi1>
  %y = mpt.select %drop, %zero, %p : tensor<2x2x8x8xi1>, tensor<2x2x8x8xf16>
  %o = mpt.matmul %y, %v : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  return %o : tensor<2x2x8x16xf16>
}

// So are columns in place of rows.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: library.attention
// WHY: not an attention: expected a select behind softmax to put 0 for NaN or for rows without keys, got another one
func.func @columns(%q: tensor<2x2x8x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16> {
  %inf = mpt.constant dense<0xFC00> : tensor<2x2x8x8xf16>
  %zero = mpt.constant dense<0.0> : tensor<2x2x8x8xf16>
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x8xf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xf16>) -> tensor<2x2x8x8xf16>
  %eq = mpt.compare eq %s, %inf : tensor<2x2x8x8xf16>
  %i = mpt.cast %eq : tensor<2x2x8x8xi1> to tensor<2x2x8x8xi32>
  %every = mpt.reduce min %i {axes = array<i64: 3>} : (tensor<2x2x8x8xi32>) -> tensor<2x2x8xi32>
  %empty = mpt.cast %every : tensor<2x2x8xi32> to tensor<2x2x8xi1>
  %columns = mpt.reshape %empty : (tensor<2x2x8xi1>) -> tensor<2x2x1x8xi1>
  %drop = mpt.broadcast %columns {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x1x8xi1>) -> tensor<2x2x8x8xi1>
  %y = mpt.select %drop, %zero, %p : tensor<2x2x8x8xi1>, tensor<2x2x8x8xf16>
  %o = mpt.matmul %y, %v : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  return %o : tensor<2x2x8x16xf16>
}

// The condition is wanted elsewhere, too.
// CHECK-LABEL: func.func @returned
// CHECK-NOT: library.attention
// WHY: not an attention: expected selects alone to read which rows have no key, got another reader
func.func @returned(%q: tensor<2x2x8x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x2x8x16xf16>) -> (tensor<2x2x8x16xf16>, tensor<2x2x8xi32>) {
  %inf = mpt.constant dense<0xFC00> : tensor<2x2x8x8xf16>
  %zero = mpt.constant dense<0.0> : tensor<2x2x8x8xf16>
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x8xf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xf16>) -> tensor<2x2x8x8xf16>
  %eq = mpt.compare eq %s, %inf : tensor<2x2x8x8xf16>
  %i = mpt.cast %eq : tensor<2x2x8x8xi1> to tensor<2x2x8x8xi32>
  %every = mpt.reduce min %i {axes = array<i64: 3>} : (tensor<2x2x8x8xi32>) -> tensor<2x2x8xi32>
  %empty = mpt.cast %every : tensor<2x2x8xi32> to tensor<2x2x8xi1>
  %rows = mpt.reshape %empty : (tensor<2x2x8xi1>) -> tensor<2x2x8x1xi1>
  %drop = mpt.broadcast %rows {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x2x8x1xi1>) -> tensor<2x2x8x8xi1>
  %y = mpt.select %drop, %zero, %p : tensor<2x2x8x8xi1>, tensor<2x2x8x8xf16>
  %o = mpt.matmul %y, %v : (tensor<2x2x8x8xf16>, tensor<2x2x8x16xf16>) -> tensor<2x2x8x16xf16>
  return %o, %every : tensor<2x2x8x16xf16>, tensor<2x2x8xi32>
}
