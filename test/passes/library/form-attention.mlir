// RUN: mpt-opt %s "--library-form-attention=most-depth=128 depth-unit=8" --canonicalize | FileCheck %s
// RUN: mpt-opt %s "--library-form-attention=most-depth=128 depth-unit=8" --debug-only=library-form-attention 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// Scales of queries and of keys, a causal mask by compared positions, and the backward pass: one call each way.
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[Q:.*]]: tensor<2x2x8x16xbf16>, %[[K:.*]]: tensor<2x2x16x8xbf16>, %[[V:.*]]: tensor<2x2x8x16xbf16>, %[[G:.*]]: tensor<2x2x8x16xbf16>)
// CHECK: %[[T:.*]] = mpt.transpose %[[K]] {permutation = array<i64: 0, 1, 3, 2>}
// CHECK: %[[O:.*]], %[[STATS:.*]] = library.attention %[[Q]], %[[T]], %[[V]] {causal, scale = 2.500000e-01 : f64}
// CHECK-NOT: mpt.softmax
// CHECK: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = library.attention_gradient %[[Q]], %[[T]], %[[V]] of %[[O]], %[[STATS]] from %[[G]] {causal, scale = 2.500000e-01 : f64, train.part = #train<part backward>}
// CHECK: %[[DKT:.*]] = mpt.transpose %[[DK]] {permutation = array<i64: 0, 1, 3, 2>}
// CHECK: return %[[O]], %[[DQ]], %[[DKT]], %[[DV]]
func.func @step(%q: tensor<2x2x8x16xbf16>, %kt: tensor<2x2x16x8xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x16x8xbf16>, tensor<2x2x8x16xbf16>) {
  %half = mpt.constant dense<0.5> : tensor<2x2x8x16xbf16>
  %halft = mpt.constant dense<0.5> : tensor<2x2x16x8xbf16>
  %qs = mpt.mul %q, %half : tensor<2x2x8x16xbf16>
  %ks = mpt.mul %kt, %halft : tensor<2x2x16x8xbf16>
  %s = mpt.matmul %qs, %ks : (tensor<2x2x8x16xbf16>, tensor<2x2x16x8xbf16>) -> tensor<2x2x8x8xbf16>
  %row = mpt.iota {axis = 0 : i64} : () -> tensor<8x8xi64>
  %column = mpt.iota {axis = 1 : i64} : () -> tensor<8x8xi64>
  %behind = mpt.compare gt %column, %row : tensor<8x8xi64>
  %out = mpt.constant dense<0xFF80> : tensor<8x8xbf16>
  %in = mpt.constant dense<0.0> : tensor<8x8xbf16>
  %mask = mpt.select %behind, %out, %in : tensor<8x8xi1>, tensor<8x8xbf16>
  %masks = mpt.broadcast %mask {dims = array<i64: 2, 3>} : (tensor<8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %x = mpt.add %s, %masks : tensor<2x2x8x8xbf16>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true, train.part = #train<part backward>} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true, train.part = #train<part backward>} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dqs = mpt.matmul %ds, %ks {transpose_b = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x16x8xbf16>) -> tensor<2x2x8x16xbf16>
  %dks = mpt.matmul %qs, %ds {transpose_a = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x16x8xbf16>
  %dq = mpt.mul %dqs, %half : tensor<2x2x8x16xbf16>
  %dk = mpt.mul %dks, %halft : tensor<2x2x16x8xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x16x8xbf16>, tensor<2x2x8x16xbf16>
}

// A padding mask for each batch is a bias that repeats over heads and queries; scores in FP32 between casts.
// CHECK-LABEL: func.func @padding
// CHECK: library.attention %{{.*}}, %{{.*}}, %{{.*}} bias %arg3 : tensor<2x1x1x8xf32> {scale = 2.500000e-01 : f64}
func.func @padding(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %mask: tensor<2x1x1x8xf32>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xf32>
  %c = mpt.constant dense<4.0> : tensor<2x2x8x8xf32>
  %d = mpt.div %s, %c : tensor<2x2x8x8xf32>
  %b = mpt.broadcast %mask {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x1x1x8xf32>) -> tensor<2x2x8x8xf32>
  %x = mpt.add %b, %d : tensor<2x2x8x8xf32>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xf32>) -> tensor<2x2x8x8xf32>
  %h = mpt.cast %p : tensor<2x2x8x8xf32> to tensor<2x2x8x8xbf16>
  %o = mpt.matmul %h, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}

// Keys that a condition excludes, then a guard of rows without any.
// CHECK-LABEL: func.func @selected
// CHECK: %[[BIAS:.*]] = mpt.select %arg3, %{{.*}}, %{{.*}} : tensor<2x1x1x8xi1>, tensor<2x1x1x8xbf16>
// CHECK: library.attention %arg0, %arg1, %arg2 bias %[[BIAS]] : tensor<2x1x1x8xbf16> {scale = 1.000000e+00 : f64}
func.func @selected(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %seen: tensor<2x1x1x8xi1>) -> tensor<2x2x8x16xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %c = mpt.broadcast %seen {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x1x1x8xi1>) -> tensor<2x2x8x8xi1>
  %out = mpt.constant dense<0xFF80> : tensor<2x2x8x8xbf16>
  %x = mpt.select %c, %s, %out : tensor<2x2x8x8xi1>, tensor<2x2x8x8xbf16>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %n = mpt.is_nan %p : tensor<2x2x8x8xbf16>
  %zero = mpt.constant dense<0.0> : tensor<2x2x8x8xbf16>
  %g = mpt.select %n, %zero, %p : tensor<2x2x8x8xi1>, tensor<2x2x8x8xbf16>
  %o = mpt.matmul %g, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o : tensor<2x2x8x16xbf16>
}

// Heads and batch in one dimension.
// CHECK-LABEL: func.func @three
// CHECK: %[[R:.*]] = mpt.reshape %arg0 : (tensor<4x8x16xf16>) -> tensor<4x1x8x16xf16>
// CHECK: library.attention %[[R]]
// CHECK: mpt.reshape %{{.*}} : (tensor<4x1x8x16xf16>) -> tensor<4x8x16xf16>
func.func @three(%q: tensor<4x8x16xf16>, %k: tensor<4x8x16xf16>, %v: tensor<4x8x16xf16>) -> tensor<4x8x16xf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<4x8x16xf16>, tensor<4x8x16xf16>) -> tensor<4x8x8xf16>
  %p = mpt.softmax %s {axis = 2 : i64} : (tensor<4x8x8xf16>) -> tensor<4x8x8xf16>
  %o = mpt.matmul %p, %v : (tensor<4x8x8xf16>, tensor<4x8x16xf16>) -> tensor<4x8x16xf16>
  return %o : tensor<4x8x16xf16>
}

// Dropout inside: the same key, ratio and stream both ways; before it, FP32.
// CHECK-LABEL: func.func @dropout
// CHECK: %[[O:.*]], %[[S:.*]] = library.attention %arg0, %arg1, %arg2 dropout %arg4 : tensor<2xi64> {ratio = 1.000000e-01 : f64, scale = 1.000000e+00 : f64, stream = 7 : i64}
// CHECK-NOT: mpt.dropout
// CHECK: library.attention_gradient %arg0, %arg1, %arg2 dropout %arg4 : tensor<2xi64> of %[[O]], %[[S]] from %arg3 {ratio = 1.000000e-01 : f64, scale = 1.000000e+00 : f64, stream = 7 : i64}
// CHECK-NOT: mpt.dropout
func.func @dropout(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>, %key: tensor<2xi64>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xf32>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xf32>) -> tensor<2x2x8x8xf32>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xf32>, tensor<2xi64>) -> tensor<2x2x8x8xf32>
  %h = mpt.cast %d : tensor<2x2x8x8xf32> to tensor<2x2x8x8xbf16>
  %o = mpt.matmul %h, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dh = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %h, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dd = mpt.cast %dh : tensor<2x2x8x8xbf16> to tensor<2x2x8x8xf32>
  %dp = mpt.dropout %dd, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x2x8x8xf32>, tensor<2xi64>) -> tensor<2x2x8x8xf32>
  %dx = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xf32>, tensor<2x2x8x8xf32>) -> tensor<2x2x8x8xf32>
  %ds = mpt.cast %dx : tensor<2x2x8x8xf32> to tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}

// Somebody else reads the probabilities.
// CHECK-LABEL: func.func @read
// WHY: library-form-attention: {{.*}}: not an attention: expected GEMMs and the gradient alone to read the probabilities, got another reader
// CHECK-NOT: library.attention
// CHECK: mpt.softmax
func.func @read(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x8xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %p : tensor<2x2x8x16xbf16>, tensor<2x2x8x8xbf16>
}

// Or the scores.
// CHECK-LABEL: func.func @scores
// WHY: library-form-attention: {{.*}}: not an attention: expected scores of a GEMM that scales and masks alone read on the way, got others
// CHECK-NOT: library.attention
// CHECK: mpt.softmax
func.func @scores(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x8xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %s : tensor<2x2x8x16xbf16>, tensor<2x2x8x8xbf16>
}

// Operands of FP32.
// CHECK-LABEL: func.func @wide
// WHY: library-form-attention: {{.*}}: not an attention: expected operands and a result all of FP16 or all of BF16, got others
// CHECK-NOT: library.attention
// CHECK: mpt.softmax
func.func @wide(%q: tensor<2x2x8x16xf32>, %k: tensor<2x2x8x16xf32>, %v: tensor<2x2x8x16xf32>) -> tensor<2x2x8x16xf32> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xf32>, tensor<2x2x8x16xf32>) -> tensor<2x2x8x8xf32>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xf32>) -> tensor<2x2x8x8xf32>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xf32>, tensor<2x2x8x16xf32>) -> tensor<2x2x8x16xf32>
  return %o : tensor<2x2x8x16xf32>
}

// A depth that is no multiple of 8.
// CHECK-LABEL: func.func @odd
// WHY: library-form-attention: {{.*}}: not an attention: expected depths of at most 128 in multiples of 8, got another depth
// CHECK-NOT: library.attention
// CHECK: mpt.softmax
func.func @odd(%q: tensor<2x2x8x12xbf16>, %k: tensor<2x2x8x12xbf16>, %v: tensor<2x2x8x12xbf16>) -> tensor<2x2x8x12xbf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x12xbf16>, tensor<2x2x8x12xbf16>) -> tensor<2x2x8x8xbf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x12xbf16>) -> tensor<2x2x8x12xbf16>
  return %o : tensor<2x2x8x12xbf16>
}

// A bias with a gradient.
// CHECK-LABEL: func.func @learned
// WHY: library-form-attention: {{.*}}: not an attention: expected GEMMs alone to read the gradient of the scores, got another reader
// CHECK-NOT: library.attention
// CHECK: mpt.softmax
func.func @learned(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %bias: tensor<2x2x8x8xbf16>, %g: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<8x8xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %x = mpt.add %s, %bias : tensor<2x2x8x8xbf16>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %db = mpt.reduce sum %ds {axes = array<i64: 0, 1>} : (tensor<2x2x8x8xbf16>) -> tensor<8x8xbf16>
  return %o, %dq, %dk, %dv, %db : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<8x8xbf16>
}

// A gradient that is scaled otherwise than the scores.
// CHECK-LABEL: func.func @apart
// WHY: library-form-attention: {{.*}}: not an attention: expected the gradient to be scaled as the scores are, got another factor
// CHECK-NOT: library.attention
// CHECK: mpt.softmax
func.func @apart(%q: tensor<2x2x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x2x8x16xbf16>) -> (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %c = mpt.constant dense<0.25> : tensor<2x2x8x8xbf16>
  %x = mpt.mul %s, %c : tensor<2x2x8x8xbf16>
  %p = mpt.softmax %x {axis = 3 : i64} : (tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %o = mpt.matmul %p, %v : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x8xbf16>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %ds = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>) -> tensor<2x2x8x8xbf16>
  %dq = mpt.matmul %ds, %k : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x2x8x8xbf16>, tensor<2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dk, %dv : tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
}
