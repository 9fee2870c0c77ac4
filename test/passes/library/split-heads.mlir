// RUN: mpt-opt %s --library-split-heads | FileCheck %s
// RUN: mpt-opt %s --library-split-heads --library-form-attention | FileCheck %s --check-prefix=CALL

// Joined heads all the way: softmax, a mask that repeats over heads, and dropout go to four dimensions with the GEMMs.
// CHECK-LABEL: func.func @joined
// CHECK: %[[S:.*]] = mpt.matmul %arg0, %arg1 {transpose_b = true} : (tensor<2x3x8x16xf16>, tensor<2x3x8x16xf16>) -> tensor<2x3x8x8xf16>
// CHECK: %[[M:.*]] = mpt.broadcast %{{.*}} {dims = array<i64: 0, 1, 2, 3>} : (tensor<2x3x1x8xf16>) -> tensor<2x3x8x8xf16>
// CHECK: %[[X:.*]] = mpt.add %[[S]], %[[M]] : tensor<2x3x8x8xf16>
// CHECK: %[[P:.*]] = mpt.softmax %[[X]] {axis = 3 : i64} : (tensor<2x3x8x8xf16>) -> tensor<2x3x8x8xf16>
// CHECK: %[[D:.*]] = mpt.dropout %[[P]], %{{.*}} {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x3x8x8xf16>
// CHECK: mpt.matmul %[[D]], %{{.*}} -> tensor<2x3x8x16xf16>
// CALL-LABEL: func.func @joined
// CALL: library.attention %arg0, %arg1, %{{.*}} bias %{{.*}} : tensor<2x3x1x8xf16> dropout
func.func @joined(%q: tensor<2x3x8x16xf16>, %k: tensor<2x3x8x16xf16>, %v: tensor<6x8x16xf16>, %mask: tensor<6x1x8xf16>, %key: tensor<2xi64>) -> tensor<6x8x16xf16> {
  %qj = mpt.reshape %q : (tensor<2x3x8x16xf16>) -> tensor<6x8x16xf16>
  %kj = mpt.reshape %k : (tensor<2x3x8x16xf16>) -> tensor<6x8x16xf16>
  %s = mpt.matmul %qj, %kj {transpose_b = true} : (tensor<6x8x16xf16>, tensor<6x8x16xf16>) -> tensor<6x8x8xf16>
  %m = mpt.broadcast %mask {dims = array<i64: 0, 1, 2>} : (tensor<6x1x8xf16>) -> tensor<6x8x8xf16>
  %x = mpt.add %s, %m : tensor<6x8x8xf16>
  %p = mpt.softmax %x {axis = 2 : i64} : (tensor<6x8x8xf16>) -> tensor<6x8x8xf16>
  %d = mpt.dropout %p, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<6x8x8xf16>, tensor<2xi64>) -> tensor<6x8x8xf16>
  %o = mpt.matmul %d, %v : (tensor<6x8x8xf16>, tensor<6x8x16xf16>) -> tensor<6x8x16xf16>
  return %o : tensor<6x8x16xf16>
}

// An addition before heads are split, and rows that a reshape to a matrix keeps.
// CHECK-LABEL: func.func @split_late
// CHECK: mpt.matmul {{.*}} -> tensor<2x3x8x8xf16>
// CHECK: mpt.add {{.*}} : tensor<2x3x8x8xf16>
// CHECK: mpt.softmax {{.*}} {axis = 3 : i64} : (tensor<2x3x8x8xf16>) -> tensor<2x3x8x8xf16>
// CALL-LABEL: func.func @split_late
// CALL: library.attention
func.func @split_late(%q: tensor<6x8x16xf16>, %k: tensor<6x8x16xf16>, %v: tensor<2x3x8x16xf16>, %bias: tensor<6x8x8xf16>) -> tensor<2x3x8x16xf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<6x8x16xf16>, tensor<6x8x16xf16>) -> tensor<6x8x8xf16>
  %x = mpt.add %s, %bias : tensor<6x8x8xf16>
  %xs = mpt.reshape %x : (tensor<6x8x8xf16>) -> tensor<2x3x8x8xf16>
  %rows = mpt.reshape %xs : (tensor<2x3x8x8xf16>) -> tensor<48x8xf16>
  %pr = mpt.softmax %rows {axis = 1 : i64} : (tensor<48x8xf16>) -> tensor<48x8xf16>
  %p = mpt.reshape %pr : (tensor<48x8xf16>) -> tensor<2x3x8x8xf16>
  %o = mpt.matmul %p, %v : (tensor<2x3x8x8xf16>, tensor<2x3x8x16xf16>) -> tensor<2x3x8x16xf16>
  return %o : tensor<2x3x8x16xf16>
}

// Keys before queries: softmax along the last dimension but one, with a mask that moves with it.
// CHECK-LABEL: func.func @along_columns
// CHECK-NOT: mpt.transpose
// CHECK: %[[S:.*]] = mpt.matmul %arg0, %arg1 {transpose_b = true} : (tensor<2x3x8x16xf16>, tensor<2x3x10x16xf16>) -> tensor<2x3x8x10xf16>
// CHECK: mpt.softmax %{{.*}} {axis = 3 : i64} : (tensor<2x3x8x10xf16>)
// CHECK-NOT: mpt.transpose
// CHECK: mpt.matmul {{.*}} -> tensor<2x3x8x16xf16>
// CALL-LABEL: func.func @along_columns
// CALL: library.attention %arg0, %arg1, %arg2 bias %{{.*}} : tensor<1x1x1x10xf16>
func.func @along_columns(%q: tensor<2x3x8x16xf16>, %k: tensor<2x3x10x16xf16>, %v: tensor<2x3x10x16xf16>, %mask: tensor<10x1xf16>) -> tensor<2x3x8x16xf16> {
  %s = mpt.matmul %k, %q {transpose_b = true} : (tensor<2x3x10x16xf16>, tensor<2x3x8x16xf16>) -> tensor<2x3x10x8xf16>
  %m = mpt.broadcast %mask {dims = array<i64: 2, 3>} : (tensor<10x1xf16>) -> tensor<2x3x10x8xf16>
  %x = mpt.add %s, %m : tensor<2x3x10x8xf16>
  %p = mpt.softmax %x {axis = 2 : i64} : (tensor<2x3x10x8xf16>) -> tensor<2x3x10x8xf16>
  %o = mpt.matmul %p, %v {transpose_a = true} : (tensor<2x3x10x8xf16>, tensor<2x3x10x16xf16>) -> tensor<2x3x8x16xf16>
  return %o : tensor<2x3x8x16xf16>
}

// Dropout draws by place: a transpose stays in front of it.
// CHECK-LABEL: func.func @drawn
// CHECK: mpt.dropout %arg0
func.func @drawn(%x: tensor<2x3x8x10xf16>, %v: tensor<2x3x8x16xf16>, %key: tensor<2xi64>) -> tensor<2x3x10x16xf16> {
  %d = mpt.dropout %x, %key {ratio = 1.000000e-01 : f64, stream = 7 : i64} : (tensor<2x3x8x10xf16>, tensor<2xi64>) -> tensor<2x3x8x10xf16>
  %t = mpt.transpose %d {permutation = array<i64: 0, 1, 3, 2>} : (tensor<2x3x8x10xf16>) -> tensor<2x3x10x8xf16>
  %p = mpt.softmax %t {axis = 3 : i64} : (tensor<2x3x10x8xf16>) -> tensor<2x3x10x8xf16>
  %o = mpt.matmul %p, %v : (tensor<2x3x10x8xf16>, tensor<2x3x8x16xf16>) -> tensor<2x3x10x16xf16>
  return %o : tensor<2x3x10x16xf16>
}

// A reshape that moves elements between rows stays.
// CHECK-LABEL: func.func @other_rows
// CHECK: mpt.reshape %{{.*}} : (tensor<2x3x8x8xf16>) -> tensor<6x16x4xf16>
// CHECK: mpt.softmax %{{.*}} : (tensor<6x16x4xf16>)
func.func @other_rows(%q: tensor<2x3x8x16xf16>, %k: tensor<2x3x8x16xf16>, %v: tensor<6x4x16xf16>) -> tensor<6x16x16xf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x3x8x16xf16>, tensor<2x3x8x16xf16>) -> tensor<2x3x8x8xf16>
  %x = mpt.reshape %s : (tensor<2x3x8x8xf16>) -> tensor<6x16x4xf16>
  %p = mpt.softmax %x {axis = 2 : i64} : (tensor<6x16x4xf16>) -> tensor<6x16x4xf16>
  %o = mpt.matmul %p, %v : (tensor<6x16x4xf16>, tensor<6x4x16xf16>) -> tensor<6x16x16xf16>
  return %o : tensor<6x16x16xf16>
}

// GEMMs without a softmax beside them are not touched.
// CHECK-LABEL: func.func @no_attention
// CHECK: mpt.matmul {{.*}} -> tensor<6x8x8xf16>
func.func @no_attention(%a: tensor<2x3x8x16xf16>, %b: tensor<2x3x8x16xf16>) -> tensor<2x3x8x8xf16> {
  %aj = mpt.reshape %a : (tensor<2x3x8x16xf16>) -> tensor<6x8x16xf16>
  %bj = mpt.reshape %b : (tensor<2x3x8x16xf16>) -> tensor<6x8x16xf16>
  %y = mpt.matmul %aj, %bj {transpose_b = true} : (tensor<6x8x16xf16>, tensor<6x8x16xf16>) -> tensor<6x8x8xf16>
  %z = mpt.reshape %y : (tensor<6x8x8xf16>) -> tensor<2x3x8x8xf16>
  return %z : tensor<2x3x8x8xf16>
}

// Values before probabilities: the product is the transpose of probabilities times values.
// CHECK-LABEL: func.func @values_first
// CHECK: %[[P:.*]] = mpt.softmax
// CHECK: %[[O:.*]] = mpt.matmul %[[P]], %arg2 : (tensor<2x3x8x10xf16>, tensor<2x3x10x16xf16>) -> tensor<2x3x8x16xf16>
// CHECK: %[[T:.*]] = mpt.transpose %[[O]] {permutation = array<i64: 0, 1, 3, 2>}
// CHECK: return %[[T]]
// CALL-LABEL: func.func @values_first
// CALL: library.attention
func.func @values_first(%q: tensor<2x3x8x16xf16>, %k: tensor<2x3x10x16xf16>, %v: tensor<2x3x10x16xf16>) -> tensor<2x3x16x8xf16> {
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x3x8x16xf16>, tensor<2x3x10x16xf16>) -> tensor<2x3x8x10xf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x3x8x10xf16>) -> tensor<2x3x8x10xf16>
  %o = mpt.matmul %v, %p {transpose_a = true, transpose_b = true} : (tensor<2x3x10x16xf16>, tensor<2x3x8x10xf16>) -> tensor<2x3x16x8xf16>
  return %o : tensor<2x3x16x8xf16>
}

// Keys that one GEMM reads with their depth first and the other one with it last are one value.
// CHECK-LABEL: func.func @upright
// CHECK: %[[K:.*]] = mpt.transpose %arg1 {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x10x3x16xf16>) -> tensor<2x3x10x16xf16>
// CHECK: mpt.matmul %arg0, %[[K]] {transpose_b = true}
// CHECK-NOT: mpt.transpose
// CHECK: mpt.matmul %{{.*}}, %[[K]] : (tensor<2x3x8x10xf16>, tensor<2x3x10x16xf16>)
func.func @upright(%q: tensor<2x3x8x16xf16>, %k: tensor<2x10x3x16xf16>) -> tensor<2x3x8x16xf16> {
  %kt = mpt.transpose %k {permutation = array<i64: 0, 2, 3, 1>} : (tensor<2x10x3x16xf16>) -> tensor<2x3x16x10xf16>
  %kr = mpt.transpose %k {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x10x3x16xf16>) -> tensor<2x3x10x16xf16>
  %s = mpt.matmul %q, %kt : (tensor<2x3x8x16xf16>, tensor<2x3x16x10xf16>) -> tensor<2x3x8x10xf16>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x3x8x10xf16>) -> tensor<2x3x8x10xf16>
  %o = mpt.matmul %p, %kr : (tensor<2x3x8x10xf16>, tensor<2x3x10x16xf16>) -> tensor<2x3x8x16xf16>
  return %o : tensor<2x3x8x16xf16>
}
