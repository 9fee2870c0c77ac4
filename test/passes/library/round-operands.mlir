// RUN: mpt-opt %s --library-round-operands | FileCheck %s
// RUN: mpt-opt %s --library-round-operands --debug-only=library-round-operands 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

train.state parameter @w : tensor<16x8xf32>
train.state parameter @v : tensor<16x8xf32>

// A table of words that is a layer's weight too: picked rows are rounded behind it, views are of the parameter.
// CHECK-LABEL: func.func @tied
// CHECK: %[[W:.*]] = train.read @w : tensor<16x8xf32>
// CHECK-NOT: mpt.cast %[[W]]
// CHECK: %[[E:.*]] = mpt.gather %[[W]], %arg0 {{.*}} -> tensor<4x8xf32>
// CHECK-NEXT: %[[X:.*]] = mpt.cast %[[E]] : tensor<4x8xf32> to tensor<4x8xbf16>
// CHECK: %[[V:.*]] = mpt.transpose %[[W]] {{.*}} -> tensor<8x16xf32>
// CHECK: library.gemm %[[X]], %[[V]] {read_as = bf16} : tensor<4x8xbf16>, tensor<8x16xf32> -> tensor<4x16xbf16>
func.func @tied(%i: tensor<4xi64>) -> tensor<4x16xbf16> {
  %w = train.read @w : tensor<16x8xf32>
  %n = mpt.cast %w : tensor<16x8xf32> to tensor<16x8xbf16>
  %x = mpt.gather %n, %i {axis = 0} : (tensor<16x8xbf16>, tensor<4xi64>) -> tensor<4x8xbf16>
  %t = mpt.transpose %n {permutation = array<i64: 1, 0>} : (tensor<16x8xbf16>) -> tensor<8x16xbf16>
  %y = mpt.matmul %x, %t : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  return %y : tensor<4x16xbf16>
}

// Two parameters, multiplied.
// CHECK-LABEL: func.func @both
// CHECK: library.gemm %{{.*}}, %{{.*}} {read_as = f16, transpose_b = true} : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf16>
func.func @both() -> tensor<16x16xf16> {
  %w = train.read @w : tensor<16x8xf32>
  %v = train.read @v : tensor<16x8xf32>
  %a = mpt.cast %w : tensor<16x8xf32> to tensor<16x8xf16>
  %b = mpt.cast %v : tensor<16x8xf32> to tensor<16x8xf16>
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<16x8xf16>, tensor<16x8xf16>) -> tensor<16x16xf16>
  return %y : tensor<16x16xf16>
}

// The pass declines a copy that another op reads too, another rounding, and a value that is no parameter.
// WHY: round-operands.mlir:{{.*}}: rounded in memory: expected readers that round by themselves, got mpt.tanh
// CHECK-LABEL: func.func @others
// CHECK-NOT: read_as
func.func @others(%x: tensor<4x8xf16>, %z: tensor<16x8xf32>) -> (tensor<4x16xf16>, tensor<16x8xf16>, tensor<4x16xf16>, tensor<4x16xf16>) {
  %w = train.read @w : tensor<16x8xf32>
  %n = mpt.cast %w : tensor<16x8xf32> to tensor<16x8xf16>
  %y = mpt.matmul %x, %n {transpose_b = true} : (tensor<4x8xf16>, tensor<16x8xf16>) -> tensor<4x16xf16>
  %t = mpt.tanh %n : tensor<16x8xf16>
  %v = train.read @v : tensor<16x8xf32>
  %s = mpt.cast %v {overflow = #mpt<overflow saturate>} : tensor<16x8xf32> to tensor<16x8xf16>
  %u = mpt.matmul %x, %s {transpose_b = true} : (tensor<4x8xf16>, tensor<16x8xf16>) -> tensor<4x16xf16>
  %c = mpt.cast %z : tensor<16x8xf32> to tensor<16x8xf16>
  %q = mpt.matmul %x, %c {transpose_b = true} : (tensor<4x8xf16>, tensor<16x8xf16>) -> tensor<4x16xf16>
  return %y, %t, %u, %q : tensor<4x16xf16>, tensor<16x8xf16>, tensor<4x16xf16>, tensor<4x16xf16>
}
