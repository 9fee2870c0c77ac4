// RUN: mpt-opt %s --library-group-queries | FileCheck %s
// RUN: mpt-opt %s --library-group-queries --debug-only=library-group-queries 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// Keys and values by a dimension of their own, and the sums of their gradients over it.
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[Q:.*]]: tensor<2x4x8x16xbf16>, %[[K:.*]]: tensor<2x2x8x16xbf16>, %[[V:.*]]: tensor<2x2x8x16xbf16>
// CHECK: %[[KS:.*]] = mpt.reshape %{{.*}} -> tensor<2x2x8x16xbf16>
// CHECK: %[[VS:.*]] = mpt.reshape %{{.*}} -> tensor<2x2x8x16xbf16>
// CHECK: library.attention %[[Q]], %[[KS]], %[[VS]] {{.*}} -> tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>
// CHECK: library.attention_gradient %[[Q]], %[[KS]], %[[VS]] {{.*}} -> tensor<2x4x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
// CHECK-NOT: mpt.reduce
func.func @step(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x2x8x16xbf16>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x4x8x16xbf16>) -> (tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x2x8x16xf32>, tensor<2x2x8x16xbf16>) {
  %k5 = mpt.reshape %k : (tensor<2x2x8x16xbf16>) -> tensor<2x2x1x8x16xbf16>
  %kb = mpt.broadcast %k5 {dims = array<i64: 0, 1, 2, 3, 4>} : (tensor<2x2x1x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xbf16>) -> tensor<2x4x8x16xbf16>
  %vb = mpt.broadcast %v {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %vr = mpt.reshape %vb : (tensor<2x2x2x8x16xbf16>) -> tensor<2x4x8x16xbf16>
  %o, %s = library.attention %q, %kr, %vr {causal, scale = 0.25 : f64} : tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16> -> tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>
  %dq, %dk, %dv = library.attention_gradient %q, %kr, %vr of %o, %s from %g {causal, scale = 0.25 : f64} : tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16> of tensor<2x4x8x16xbf16>, tensor<2x4x8xf32> from tensor<2x4x8x16xbf16> -> tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>
  %dk5 = mpt.reshape %dk : (tensor<2x4x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %dks = mpt.reduce sum %dk5 {axes = array<i64: 2>} : (tensor<2x2x2x8x16xbf16>) -> tensor<2x2x8x16xf32>
  %dv5 = mpt.reshape %dv : (tensor<2x4x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %dvs = mpt.reduce sum %dv5 {axes = array<i64: 2>} : (tensor<2x2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %o, %dq, %dks, %dvs : tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x2x8x16xf32>, tensor<2x2x8x16xbf16>
}

// Heads beside the batch on the way, transposed keys, a factor behind the repetition, and a cast: all of them stay.
// CHECK-LABEL: func.func @around
// CHECK: %[[K:.*]] = mpt.cast %{{.*}} : tensor<2x2x8x16xf32> to tensor<2x2x8x16xbf16>
// CHECK: library.attention %{{.*}}, %[[K]], %{{.*}} tensor<2x4x8x16xbf16>, tensor<2x2x8x16xbf16>, tensor<2x2x8x16xbf16>
// CHECK: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = library.attention_gradient
// CHECK: mpt.cast %[[DK]] : tensor<2x2x8x16xbf16> to tensor<2x2x8x16xf32>
// CHECK-NOT: mpt.reduce
func.func @around(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x2x8x16xf32>, %v: tensor<2x2x8x16xbf16>, %g: tensor<2x4x8x16xbf16>) -> (tensor<2x2x8x16xf32>, tensor<2x2x8x16xbf16>) {
  %half = mpt.constant dense<0.5> : tensor<2x4x16x8xf32>
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xf32>) -> tensor<2x2x2x8x16xf32>
  %k3 = mpt.reshape %kb : (tensor<2x2x2x8x16xf32>) -> tensor<8x8x16xf32>
  %kt = mpt.transpose %k3 {permutation = array<i64: 0, 2, 1>} : (tensor<8x8x16xf32>) -> tensor<8x16x8xf32>
  %k4 = mpt.reshape %kt : (tensor<8x16x8xf32>) -> tensor<2x4x16x8xf32>
  %ks = mpt.mul %k4, %half : tensor<2x4x16x8xf32>
  %ku = mpt.transpose %ks {permutation = array<i64: 0, 1, 3, 2>} : (tensor<2x4x16x8xf32>) -> tensor<2x4x8x16xf32>
  %kr = mpt.cast %ku : tensor<2x4x8x16xf32> to tensor<2x4x8x16xbf16>
  %vb = mpt.broadcast %v {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %vr = mpt.reshape %vb : (tensor<2x2x2x8x16xbf16>) -> tensor<2x4x8x16xbf16>
  %o, %s = library.attention %q, %kr, %vr {scale = 0.25 : f64} : tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16> -> tensor<2x4x8x16xbf16>, tensor<2x4x8xf32>
  %dq, %dk, %dv = library.attention_gradient %q, %kr, %vr of %o, %s from %g {scale = 0.25 : f64} : tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16> of tensor<2x4x8x16xbf16>, tensor<2x4x8xf32> from tensor<2x4x8x16xbf16> -> tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>
  %dkc = mpt.cast %dk : tensor<2x4x8x16xbf16> to tensor<2x4x8x16xf32>
  %dkt = mpt.transpose %dkc {permutation = array<i64: 0, 1, 3, 2>} : (tensor<2x4x8x16xf32>) -> tensor<2x4x16x8xf32>
  %dks = mpt.mul %dkt, %half : tensor<2x4x16x8xf32>
  %dk3 = mpt.reshape %dks : (tensor<2x4x16x8xf32>) -> tensor<8x16x8xf32>
  %dku = mpt.transpose %dk3 {permutation = array<i64: 0, 2, 1>} : (tensor<8x16x8xf32>) -> tensor<8x8x16xf32>
  %dk5 = mpt.reshape %dku : (tensor<8x8x16xf32>) -> tensor<2x2x2x8x16xf32>
  %dkr = mpt.reduce sum %dk5 {axes = array<i64: 2>} : (tensor<2x2x2x8x16xf32>) -> tensor<2x2x8x16xf32>
  %dv5 = mpt.reshape %dv : (tensor<2x4x8x16xbf16>) -> tensor<2x2x2x8x16xbf16>
  %dvs = mpt.reduce sum %dv5 {axes = array<i64: 2>} : (tensor<2x2x2x8x16xbf16>) -> tensor<2x2x8x16xbf16>
  return %dkr, %dvs : tensor<2x2x8x16xf32>, tensor<2x2x8x16xbf16>
}

// One head of keys for all queries, and for all of the batch: the rest of the sum stays.
// CHECK-LABEL: func.func @one
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x1x8x16xf16>, tensor<2x1x8x16xf16>
// CHECK: mpt.reduce sum %{{.*}} {axes = array<i64: 0>} : (tensor<2x1x8x16xf16>) -> tensor<1x8x16xf16>
func.func @one(%q: tensor<2x4x8x16xf16>, %k: tensor<8x16xf16>, %v: tensor<2x1x8x16xf16>, %g: tensor<2x4x8x16xf16>) -> (tensor<8x16xf16>, tensor<2x8x16xf16>) {
  %kr = mpt.broadcast %k {dims = array<i64: 2, 3>} : (tensor<8x16xf16>) -> tensor<2x4x8x16xf16>
  %vr = mpt.broadcast %v {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x1x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %vr {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  %dq, %dk, %dv = library.attention_gradient %q, %kr, %vr of %o, %s from %g {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> of tensor<2x4x8x16xf16>, tensor<2x4x8xf32> from tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
  %dks = mpt.reduce sum %dk {axes = array<i64: 0, 1>} : (tensor<2x4x8x16xf16>) -> tensor<8x16xf16>
  %dvs = mpt.reduce sum %dv {axes = array<i64: 1>} : (tensor<2x4x8x16xf16>) -> tensor<2x8x16xf16>
  return %dks, %dvs : tensor<8x16xf16>, tensor<2x8x16xf16>
}

// Forward alone.
// CHECK-LABEL: func.func @predict
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x2x8x16xf16>, tensor<2x2x8x16xf16>
func.func @predict(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x8x16xf16>) -> tensor<2x4x8x16xf16> {
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xf16>) -> tensor<2x2x2x8x16xf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %kr {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  return %o : tensor<2x4x8x16xf16>
}

// Keys alone are repeated.
// CHECK-LABEL: func.func @keys
// WHY: not grouped: expected keys and values repeated alike, got each head of them 2 and 1 times
// CHECK: mpt.broadcast
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
func.func @keys(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x8x16xf16>) -> tensor<2x4x8x16xf16> {
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xf16>) -> tensor<2x2x2x8x16xf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %q {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  return %o : tensor<2x4x8x16xf16>
}

// Heads 0 and 2 share a head of keys, not neighbours.
// CHECK-LABEL: func.func @tiled
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
func.func @tiled(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x8x16xf16>) -> tensor<2x4x8x16xf16> {
  %kb = mpt.broadcast %k {dims = array<i64: 0, 2, 3, 4>} : (tensor<2x2x8x16xf16>) -> tensor<2x2x2x8x16xf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %kr {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  return %o : tensor<2x4x8x16xf16>
}

// Groups of two for keys, of four for values.
// CHECK-LABEL: func.func @unlike
// WHY: not grouped: expected keys and values repeated alike, got each head of them 2 and 4 times
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
func.func @unlike(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x8x16xf16>, %v: tensor<2x1x8x16xf16>) -> tensor<2x4x8x16xf16> {
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xf16>) -> tensor<2x2x2x8x16xf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xf16>) -> tensor<2x4x8x16xf16>
  %vr = mpt.broadcast %v {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x1x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %vr {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  return %o : tensor<2x4x8x16xf16>
}

// The gradient of each repeated head is a result.
// CHECK-LABEL: func.func @read
// WHY: not grouped: expected gradients of keys and values that are summed over the heads that share them, got other readers
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
func.func @read(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x8x16xf16>, %g: tensor<2x4x8x16xf16>) -> (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) {
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xf16>) -> tensor<2x2x2x8x16xf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %kr {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  %dq, %dk, %dv = library.attention_gradient %q, %kr, %kr of %o, %s from %g {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> of tensor<2x4x8x16xf16>, tensor<2x4x8xf32> from tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
  return %dk, %dv : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
}

// Summed over neighbouring tokens, not over heads.
// CHECK-LABEL: func.func @tokens
// WHY: not grouped: expected gradients of keys and values that are summed over the heads that share them, got other readers
// CHECK: library.attention %{{.*}} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
func.func @tokens(%q: tensor<2x4x8x16xf16>, %k: tensor<2x2x8x16xf16>, %g: tensor<2x4x8x16xf16>) -> (tensor<2x4x4x16xf16>, tensor<2x4x4x16xf16>) {
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x8x16xf16>) -> tensor<2x2x2x8x16xf16>
  %kr = mpt.reshape %kb : (tensor<2x2x2x8x16xf16>) -> tensor<2x4x8x16xf16>
  %o, %s = library.attention %q, %kr, %kr {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8xf32>
  %dq, %dk, %dv = library.attention_gradient %q, %kr, %kr of %o, %s from %g {scale = 0.25 : f64} : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16> of tensor<2x4x8x16xf16>, tensor<2x4x8xf32> from tensor<2x4x8x16xf16> -> tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
  %dk5 = mpt.reshape %dk : (tensor<2x4x8x16xf16>) -> tensor<2x4x4x2x16xf16>
  %dks = mpt.reduce sum %dk5 {axes = array<i64: 3>} : (tensor<2x4x4x2x16xf16>) -> tensor<2x4x4x16xf16>
  %dv5 = mpt.reshape %dv : (tensor<2x4x8x16xf16>) -> tensor<2x4x4x2x16xf16>
  %dvs = mpt.reduce sum %dv5 {axes = array<i64: 3>} : (tensor<2x4x4x2x16xf16>) -> tensor<2x4x4x16xf16>
  return %dks, %dvs : tensor<2x4x4x16xf16>, tensor<2x4x4x16xf16>
}
